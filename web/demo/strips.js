/** The two strips above the controls: an alert that says what went wrong and what to do, and a quiet notice. */

const alertRegion = document.getElementById("alert-region");
const noticeRegion = document.getElementById("notice-region");

export function showAlert(text) {
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("class", "icon");
  icon.setAttribute("aria-hidden", "true");
  icon.append(document.createElementNS("http://www.w3.org/2000/svg", "use"));
  icon.firstChild.setAttribute("href", "#icon-alert");
  alertRegion.replaceChildren(strip("alarm", icon, paragraph(text), button("Dismiss", clearAlert)));
  alertRegion.scrollIntoView({ block: "nearest" });
}

export function clearAlert() {
  alertRegion.replaceChildren();
}

/** @param {string} text @param {{label: string, act: () => void}} [action]  something the person may do about it */
export function showNotice(text, action) {
  const undo = action && button(action.label, () => (clearNotice(), action.act()));
  noticeRegion.replaceChildren(strip("notice", paragraph(text), ...(undo ? [undo] : []), button("Dismiss", clearNotice)));
}

export function clearNotice() {
  noticeRegion.replaceChildren();
}

function strip(kind, ...children) {
  const element = document.createElement("div");
  element.className = `strip ${kind}`;
  element.append(...children);
  return element;
}

function paragraph(text) {
  const element = document.createElement("p");
  element.textContent = text;
  return element;
}

function button(label, act) {
  const element = document.createElement("button");
  element.type = "button";
  element.className = "quiet small";
  element.textContent = label;
  element.addEventListener("click", act);
  return element;
}
