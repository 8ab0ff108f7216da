/** Reads what people want to know out of a model's metadata, which the bridge hands over as text values. */

import { bytes, integer, plural } from "./format.js";

// `general.file_type`, the llama_ftype enumeration of llama.cpp's llama.h
const FILE_TYPES = {
  0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
  13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
  21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
  30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
};

// Runtime notes that people meet; the rest are shown as they are.
const NOTES = [
  [/^boot:plain$/, "Python started without its memory snapshot, which takes longer."],
  [/^threads_capped_no_coi$/, "The page is not cross-origin isolated, so the processor works on one thread."],
  [/^generation_stopped_context_limit$/, "The answer ended because the context was full."],
  [/^n_ctx_capped:(\d+)$/, (length) => `The context has the ${integer(length)} tokens that the model can tell apart.`],
  [/^n_ctx_exceeds_training:(\d+)$/, (length) => `The context is longer than the ${integer(length)} tokens that the model was trained on.`],
  [/^gpu_layers_whole_model:/, "Models run on the graphics processor whole, however many layers were asked for."],
  [/^webgpu_completion_at_intervals:/, "This browser looks at finished work only now and then, so it is kept looking."],
  [/^gpu_(features|tuning|selection)_unusable:/, "Some of the graphics driver’s features compute something wrong and are left out."],
  [/^previous_model_released$/, "The model before was freed first."],
  [/^worker_fallback:/, "The worker failed, so the model runs on the page’s own thread."],
  [/^model_cache_hit$/, "The model came from this browser’s cache."],
  [/^model_cache_stored$/, "The model is kept in this browser’s cache for next time."],
  [/^model_cache_quota_exceeded$/, "The browser has no room to keep the model, so it is downloaded each time."],
];

/** @param {Record<string, unknown>} metadata */
export function modelName(metadata) {
  return text(metadata["general.name"]) || text(metadata["general.basename"]) || "Unnamed model";
}

/** @returns {[string, string][]} label and value; what the file does not say is left out */
export function modelFacts(metadata) {
  const architecture = text(metadata["general.architecture"]);
  const own = (key) => number(metadata[`${architecture}.${key}`]);
  const rows = [
    ["Name", modelName(metadata)],
    ["Architecture", architecture],
    ["Parameters", parameters(metadata)],
    ["Quantisation", FILE_TYPES[number(metadata["general.file_type"])]],
    ["Size", engineNumber(metadata, "model_bytes", bytes)],
    ["Layers", own("block_count") && integer(own("block_count"))],
    ["Trained for", own("context_length") && `${integer(own("context_length"))} tokens`],
    ["Licence", text(metadata["general.license"])],
  ];
  return rows.filter(([, value]) => value);
}

/** @returns {[string, string][]} */
export function engineFacts({ metadata, backend, isGpuActive }) {
  const rows = [
    ["Backend", backend],
    ["Adapter", adapterName(metadata["llamadart.webgpu.adapter"])],
    ["Graphics", isGpuActive ? "in use" : "not in use"],
    ["Runs in", { worker: "a worker", "main-thread": "the page’s thread" }[metadata["llamadart.webgpu.execution"]]],
    ["Threads", engineNumber(metadata, "n_threads", integer)],
    ["Source", text(metadata["llamadart.webgpu.model_source"])],
  ];
  return rows.filter(([, value]) => value);
}

/** What this browser gives an engine, before any model is loaded. @returns {[string, string][]} */
export function browserFacts({ navigator, isSecureContext, crossOriginIsolated }) {
  const cores = navigator.hardwareConcurrency;
  return [
    ["WebGPU", navigator.gpu ? "available" : isSecureContext ? "not available" : "off, as the page is not secure"],
    ["Processor", cores ? plural(cores, "thread") : "unknown"],
    ["Isolated", crossOriginIsolated ? "yes" : "no, so the processor works on one thread"],
  ];
}

/** @returns {{code: string, meaning: string | null}[]} */
export function runtimeNotes(metadata) {
  const codes = (text(metadata["llamadart.webgpu.runtime_notes"]) ?? "").split(";").filter(Boolean);
  return codes.map((code) => ({ code, meaning: meaningOf(code) }));
}

function meaningOf(code) {
  for (const [pattern, meaning] of NOTES) {
    const match = code.match(pattern);
    if (match) return typeof meaning === "function" ? meaning(match[1]) : meaning;
  }
  return null;
}

/** The adapter as one line; the engine gives either a line or JSON with vendor, architecture, device, description. */
export function adapterName(value) {
  let adapter = value;
  try {
    adapter = typeof value === "string" ? JSON.parse(value) : value;
  } catch {
    return text(value); // a plain line
  }
  if (!adapter || typeof adapter !== "object") return text(adapter);
  const { description, vendor, architecture, device } = adapter;
  return text(description) || [vendor, architecture, device].filter(Boolean).join(" ");
}

/** Whether the "graphics processor" is a program: SwiftShader, llvmpipe, Microsoft's basic renderer. */
export function isSoftwareAdapter(metadata) {
  return /swiftshader|llvmpipe|lavapipe|basic render|warp/i.test(adapterName(metadata["llamadart.webgpu.adapter"]) ?? "");
}

function parameters(metadata) {
  const count = number(metadata["general.parameter_count"]);
  if (!count) return text(metadata["general.size_label"]);
  return count >= 1e9 ? `${(count / 1e9).toFixed(1)} billion` : `${Math.round(count / 1e6)} million`;
}

function engineNumber(metadata, key, show) {
  const value = number(metadata[`llamadart.webgpu.${key}`]);
  return value > 0 ? show(value) : null;
}

function number(value) {
  return value === null || value === undefined || value === "" ? NaN : Number(value);
}

function text(value) {
  return typeof value === "string" || typeof value === "number" ? String(value) : null;
}
