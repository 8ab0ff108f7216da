/** Lets a file be dropped anywhere on the page while a model can be chosen. */

/** @param {{mayDrop: () => boolean, onFile: (file: File) => void}} handlers */
export function acceptDrops({ mayDrop, onFile }) {
  const overlay = document.getElementById("drop");
  const carriesFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault(); // else the browser would leave this page for the file
    event.dataTransfer.dropEffect = mayDrop() ? "copy" : "none";
    overlay.hidden = !mayDrop();
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) overlay.hidden = true; // out of the window, not from one element to the next
  });
  addEventListener("drop", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    overlay.hidden = true;
    if (mayDrop() && event.dataTransfer.files[0]) onFile(event.dataTransfer.files[0]);
  });
}
