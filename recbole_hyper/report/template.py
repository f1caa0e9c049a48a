"""The page of a report: its head and its frame. All of it is inside the file: nothing is fetched."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { --ink: #1d2129; --soft: #5c6570; --line: #dde1e6; --head: #f4f6f8; --mark: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 15px/1.5 system-ui, "Segoe UI", sans-serif; }
main, header > div { max-width: 1240px; margin: 0 auto; padding: 0 24px; }
header { border-bottom: 1px solid var(--line); background: var(--head); padding: 20px 0 14px; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 34px 0 8px; border-bottom: 2px solid var(--line); padding-bottom: 4px; }
h3 { font-size: 15px; margin: 20px 0 6px; }
p, li { max-width: 90ch; }
.soft { color: var(--soft); }
nav a { color: var(--mark); margin-right: 16px; text-decoration: none; }
.notes { border-left: 4px solid #d55e00; padding: 4px 14px; background: #fdf5ef; margin: 16px 0; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 4px; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { padding: 5px 10px; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
td.long { white-space: normal; min-width: 18em; max-width: 34em; overflow-wrap: anywhere; }
th { background: var(--head); cursor: pointer; position: sticky; top: 0; }
th[data-order]::after { content: " \\2193"; }
th[data-order="1"]::after { content: " \\2191"; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr:hover td { background: #f2f8fc; }
td.best { font-weight: 650; }
figure { margin: 12px 0 22px; }
figure img { max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: 13px; max-width: 90ch; }
details > summary { cursor: pointer; color: var(--mark); margin: 6px 0; }
@media print { header { background: none; } th { position: static; } .wide { overflow: visible; } }
</style>
</head>
<body>
<header><div><h1>$title</h1><div class="soft">$subtitle</div><nav>$navigation</nav></div></header>
<main>
$body
</main>
<script>
document.querySelectorAll("table").forEach(function (table) {
  table.querySelectorAll("th").forEach(function (head, column) {
    head.addEventListener("click", function () {
      var up = head.dataset.order === "-1" ? 1 : -1;
      var rows = Array.from(table.tBodies[0].rows);
      var key = function (row) { return row.cells[column].dataset.value; };
      rows.sort(function (a, b) {
        var x = key(a), y = key(b);
        if (x === "" || y === "") { return (x === "") - (y === ""); }
        return up * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
      });
      table.querySelectorAll("th").forEach(function (other) { delete other.dataset.order; });
      head.dataset.order = up;
      rows.forEach(function (row) { table.tBodies[0].appendChild(row); });
    });
  });
});
</script>
</body>
</html>
"""
