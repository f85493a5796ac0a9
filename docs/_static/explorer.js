// Two sliders over numbers that were computed when the site was built: window.EXPLORER of explorer-data.js.
(function () {
  "use strict";
  const data = window.EXPLORER, byId = name => document.getElementById(name);
  const left = 84, right = 620, top = 28, bottom = 286, low = -11, high = 1;
  const colours = { error: "#0072B2", truncation: "#D55E00", floor: "#009E73" };
  const across = m => left + (right - left) * Math.log(m) / Math.log(data.M[data.M.length - 1]);
  const down = e => top + (bottom - top) * (high - Math.max(low, Math.log10(Math.max(e, 1e-300)))) / (high - low);
  const line = (values, colour, dash) =>
    `<path class="curve" fill="none" stroke="${colour}" stroke-width="2.5" stroke-dasharray="${dash}" d="` +
    values.map((e, k) => `${k ? "L" : "M"}${across(data.M[k]).toFixed(1)} ${down(e).toFixed(1)}`).join("") + '"/>';
  const label = (x, y, words, anchor) => `<text x="${x}" y="${y}" text-anchor="${anchor || "middle"}">${words}</text>`;
  const key = (x, words, colour, dash) => `<path stroke="${colour}" stroke-width="2.5" stroke-dasharray="${dash}" d="M${x} 322h34"/>` + label(x + 40, 326, words, "start");

  function axes() {
    let drawn = "";
    for (let power = low + 1; power <= high - 1; power += 2) {
      const y = down(Math.pow(10, power));
      drawn += `<path stroke="currentColor" stroke-opacity="0.18" d="M${left} ${y}H${right}"/>` + label(left - 8, y + 4, `1e${power}`, "end");
    }
    for (const m of [1, 10, 100, 1000]) drawn += label(across(m), bottom + 18, m, m === 1000 ? "end" : "middle");
    return drawn + label(right, bottom - 8, "terms M", "end") + label(left, top - 6, "relative error", "start");
  }

  function draw() {
    const s = +byId("explorer-S").value, k = +byId("explorer-M").value;
    const S = data.S[s], M = data.M[k], error = data.error[s][k], floor = data.floor[s], rest = data.truncation[k];
    byId("explorer-S-out").textContent = S;
    byId("explorer-M-out").textContent = M;
    byId("explorer-plot").innerHTML = axes() +
      line(data.truncation, colours.truncation, "6 4") + line(data.M.map(() => floor), colours.floor, "2 4") +
      line(data.error[s], colours.error, "") +
      `<circle cx="${across(M)}" cy="${down(error)}" r="6" fill="${colours.error}"/>` +
      key(left, "error", colours.error, "") + key(left + 170, "truncation", colours.truncation, "6 4") + key(left + 380, "floor", colours.floor, "2 4");
    const larger = rest > floor ? "truncation: use more terms" : "the floor: use more steps per averaging";
    byId("explorer-words").textContent = `S = ${S}, M = ${M}: relative error ${error.toExponential(1)}; truncation ` +
      `${rest.toExponential(1)}, floor ${floor.toExponential(1)}. ${S * M} rounds of the network. The larger part is ${larger}.`;
  }

  for (const [name, values, start] of [["explorer-S", data.S, 4], ["explorer-M", data.M, 24]]) {
    byId(name).max = values.length - 1;
    byId(name).value = start;
    byId(name).addEventListener("input", draw);
  }
  draw();
})();
