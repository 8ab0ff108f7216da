/** Lets files be dropped anywhere on the page. */

import { byId } from "./elements.js";

/** @param {(files: FileList) => void} onFiles */
export function acceptDrops(onFiles) {
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault(); // else the browser would leave this page for the file
    event.dataTransfer.dropEffect = "copy";
    byId("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) byId("drop").hidden = true; // out of the window, not from one element to the next
  });
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    byId("drop").hidden = true;
    onFiles(event.dataTransfer.files);
  });
}
