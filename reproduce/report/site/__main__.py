"""The results as static pages: ``python -m reproduce.report.site build``, or ``serve`` to build and look at them."""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
from pathlib import Path

from reproduce.report.publish import PUBLISHED
from reproduce.report.site.build import OUT, build


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        count, lacking = build(options.records, options.out, not options.without_asv)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{count} files in {options.out}; open {options.out / 'index.html'}")
    if lacking and not options.without_asv:
        print(f"without asv's dashboard: {lacking}")
    if options.action == "serve":
        with server(options.out, options.port) as serving:
            print(f"http://127.0.0.1:{serving.server_port}/ (end with Ctrl-C)", flush=True)
            try:
                serving.serve_forever()
            except KeyboardInterrupt:
                print()
    return 0


def server(folder: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Serves a folder to this machine only; port 0 takes a free one."""
    handler = functools.partial(_Quiet, directory=str(folder))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduce.report.site", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--records", type=Path, default=PUBLISHED / "records", help="run records; default: the published"
    )
    shared.add_argument("--out", type=Path, default=OUT, help="where the pages go; default: site/")
    shared.add_argument("--without-asv", action="store_true", help="leave out the dashboard of speed across commits")
    actions.add_parser("build", parents=[shared], help="write the pages")
    serve = actions.add_parser("serve", parents=[shared], help="write the pages and serve them on this machine")
    serve.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
