// Boots the engine in a module worker and runs a piece of Python in it: {options, python} in, {answer, boot} or {error} out.
import { bootEngine } from "/web/boot.js";

self.onmessage = async ({ data: { options, python } }) => {
  try {
    const { pyodide, boot } = await bootEngine(options);
    self.postMessage({ answer: await pyodide.runPythonAsync(python), boot: structuredClone(boot) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
