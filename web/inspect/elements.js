/** A new element: properties (className, textContent, …), attributes after "@" ("@aria-sort"), children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("@")) made.setAttribute(name.slice(1), value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);
