// Runs before the first paint, so that a chosen theme never flashes the other one; modules run too late for that.
try {
  document.documentElement.dataset.theme = JSON.parse(localStorage.getItem("bridge-demo.theme")) ?? "system";
} catch {
  document.documentElement.dataset.theme = "system"; // storage is off, or holds something else
}
