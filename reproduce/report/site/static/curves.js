// A cursor for every chart: it reads the table of numbers below it and shows the values beside the names.
"use strict";
for (const figure of document.querySelectorAll("figure.chart")) {
  const svg = figure.querySelector("svg.curves");
  const table = figure.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const steps = rows.map((row) => Number(row.dataset.step));
  const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent.trim());
  const scale = JSON.parse(svg.dataset.scale);
  const values = [...figure.querySelectorAll(".legend .value")];
  const dots = [...svg.querySelectorAll("circle.dot")];
  const line = svg.querySelector("line.cursor");
  const slider = figure.querySelector("input[type=range]");
  const output = figure.querySelector("output");

  const x = (step) => scale.left + ((step - scale.x[0]) / (scale.x[1] - scale.x[0])) * (scale.right - scale.left);
  const y = (value) => {
    const [low, high] = scale.log ? scale.y.map(Math.log10) : scale.y;
    const at = scale.log ? Math.log10(value) : value;
    return scale.bottom - ((at - low) / (high - low)) * (scale.bottom - scale.top);
  };

  const show = (index) => {
    const cells = [...rows[index].cells].slice(1);
    const at = x(steps[index]);
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    figure.classList.add("reading");
    cells.forEach((cell, column) => {
      const has = cell.dataset.value !== undefined;
      values[column].textContent = has ? cell.textContent.trim() : "–";
      dots[column].classList.toggle("absent", !has);
      if (has) {
        dots[column].setAttribute("cx", at);
        dots[column].setAttribute("cy", y(Number(cell.dataset.value)));
      }
    });
    output.textContent = `update ${steps[index].toLocaleString("en-GB")}`;
    slider.value = index;
    const said = names.map((name, column) => `${name}: ${values[column].textContent}`).join("; ");
    slider.setAttribute("aria-valuetext", `${output.textContent}. ${said}`);
  };

  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    let best = 0;
    steps.forEach((step, index) => {
      if (Math.abs(x(step) - at) < Math.abs(x(steps[best]) - at)) best = index;
    });
    return best;
  };

  slider.max = rows.length - 1;
  slider.closest("label").hidden = false;
  slider.addEventListener("input", () => show(Number(slider.value)));
  slider.addEventListener("focus", () => show(Number(slider.value)));
  svg.addEventListener("pointermove", (event) => show(nearest(event)));
  svg.addEventListener("pointerdown", (event) => show(nearest(event)));
  show(rows.length - 1);
}
