"""Chromium without a window, driven over its debugging pipe: no driver, no package."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

EXECUTABLES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "--window-size=1280,900",
)
PATIENCE = 120.0
KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}


def executable() -> str | None:
    return next((found for name in EXECUTABLES if (found := shutil.which(name))), None)


class DebuggingError(RuntimeError):
    """Chromium's answer to a command that it could not carry out."""


class Chromium:
    """One page. ``requests`` holds what it asked for, ``errors`` what its console complained about."""

    def __init__(self, profile: Path) -> None:
        chromium = executable()
        assert chromium is not None
        theirs_in, self._commands = os.pipe()
        self._answers, theirs_out = os.pipe()

        def fixed_numbers() -> None:
            # Chromium reads commands from descriptor 3 and writes to 4; move both out of the way of each other first.
            moved = os.dup(theirs_in), os.dup(theirs_out)
            high = [os.dup2(descriptor, 60 + n) for n, descriptor in enumerate(moved)]
            for number, descriptor in enumerate(high, start=3):
                os.dup2(descriptor, number)

        self._log = (profile.parent / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=fixed_numbers,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, None
        self.requests: list[str] = []
        self.errors: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Network", "Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._next(until)
            self._note(answer.get("method"), answer.get("params", {}))
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise DebuggingError(f"{method}: {answer['error']}")
                return answer["result"]

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(str(params["args"]))

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._answers, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError(f"Chromium does not answer; its log: {Path(self._log.name).read_text()[-2000:]}")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, address: str) -> None:
        self.send("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise DebuggingError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The first value of an expression that counts as true."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with contextlib.suppress(DebuggingError):  # between two pages there is nothing to evaluate in
                if value := self.evaluate(expression):
                    return value
            time.sleep(0.1)
        raise TimeoutError(f"Never true: {expression}; the page is {self.evaluate('location.href')}")

    def resize(self, width: int, height: int) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Ask pages for their "light" or "dark" form."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def hover(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """What the window shows, or the whole page."""
        part: dict[str, Any] = {"clip": self._page(), "captureBeyondViewport": True} if whole else {}
        answer = self.send("Page.captureScreenshot", **part)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _page(self) -> dict[str, float]:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def close(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self._session = None
            self.send("Browser.close")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for descriptor in (self._commands, self._answers):
            os.close(descriptor)
        self._log.close()
