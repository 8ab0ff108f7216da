/**
 * Joins the parts of the page. There are four phases: "idle" (no model), "loading", "ready" and "answering"; the phase
 * stands in body[data-phase], and css/layout.css shows what belongs to it.
 */

import { announce, SpokenAnswer } from "./announcer.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { acceptDrops } from "./drop.js";
import { Engine } from "./engine.js";
import { explain, isAbort } from "./errors.js";
import { isSoftwareAdapter, modelName } from "./facts.js";
import { Loader } from "./loader.js";
import { Panes } from "./panes.js";
import { RunPane } from "./run_pane.js";
import { Settings } from "./settings.js";
import { clearAlert, clearNotice, showAlert, showNotice } from "./strips.js";
import { startThemeButton } from "./theme.js";
import { Transcript } from "./transcript.js";

const engine = new Engine();
const conversation = new Conversation();
const settings = new Settings();
const runPane = new RunPane();
const panes = new Panes();
const transcript = new Transcript({ onAgain: again });
const loader = new Loader({ onLoad: (...chosen) => start((signal) => load(...chosen, signal)), onCancel: stop });
const composer = new Composer({ onSend: send, onStop: stop, onClear: clear, mayStop: () => phase() === "answering" });

const SOFTWARE_ADAPTER =
  "This browser draws with a software graphics adapter, so answers come slowly; with graphics acceleration on they are many times faster.";

let running = null; // {controller, done} of the load or the answer in progress

const phase = () => document.body.dataset.phase;
const setPhase = (name) => (document.body.dataset.phase = name);

/** Starts a load or an answer under a signal that `stop` aborts; `running.done` settles when it is over and shown. */
function start(task) {
  const controller = new AbortController();
  running = { controller, done: task(controller.signal).finally(() => (running = null)) };
}

/** Stops what is in progress, and waits until that is over and shown. */
async function stop() {
  running?.controller.abort();
  await running?.done;
}

async function load(source, options, name, signal) {
  clearAlert();
  clearNotice();
  setPhase("loading");
  loader.setBusy(true);
  document.getElementById("cancel-load").focus();
  let failure = null;
  try {
    await engine.load(source, options, { signal, onProgress: (progress) => loader.progress.update(progress) });
  } catch (error) {
    failure = error;
  }
  setPhase(failure ? "idle" : "ready");
  loader.setBusy(false);
  showModel(name);
  if (!failure) {
    composer.focus();
    if (isSoftwareAdapter(engine.facts().metadata)) showNotice(SOFTWARE_ADAPTER);
    return announce("The model is ready.");
  }
  document.getElementById("load").focus();
  if (isAbort(failure)) showNotice("Loading was cancelled.");
  else showAlert(explain(failure, "Load it again, or choose another model."));
}

async function unload() {
  await stop();
  setPhase("idle");
  showModel();
  document.getElementById("load").focus();
  await engine.unload().catch((error) => showAlert(explain(error, "Reload the page to free the model’s memory.")));
}

function send(text) {
  conversation.add("user", text);
  start(answer);
}

function again() {
  conversation.dropLastAnswer();
  start(answer);
}

async function answer(signal) {
  clearAlert();
  clearNotice();
  const turns = conversation.turns();
  if (settings.systemPrompt) turns.unshift({ role: "system", content: settings.systemPrompt });
  const message = conversation.add("assistant", "");
  const spoken = new SpokenAnswer();
  const onText = (piece) => {
    message.content += piece;
    spoken.add(piece);
    transcript.update();
    runPane.addToTrace(performance.now());
  };
  setPhase("answering");
  transcript.show(conversation.messages);
  transcript.startStreaming();
  runPane.startTrace();
  try {
    const { usage, notes } = await engine.answer(turns, settings.sampling, { signal, onText });
    Object.assign(message, { usage, notes, ended: signal.aborted ? "cancelled" : (usage?.finishReason ?? "stop") });
  } catch (error) {
    message.ended = isAbort(error) ? "cancelled" : "failed";
    if (!isAbort(error)) showAlert(explain(error, "Try again."));
  }
  finishAnswer(message, spoken);
}

/** Also after a failure: an answer that broke off keeps its text, one without any text leaves. */
function finishAnswer(message, spoken) {
  spoken.end({ cancelled: "The answer was stopped.", failed: "The answer failed." }[message.ended]);
  if (message.ended === "failed" && !message.content) {
    conversation.dropLastAnswer();
    transcript.show(conversation.messages);
  } else {
    transcript.endStreaming();
  }
  if (!conversation.save()) showNotice("This browser does not let the page keep the conversation; it is gone after a reload.");
  runPane.showUsage(message.usage);
  setPhase("ready");
  runPane.showFacts(engine.facts(), message.usage);
}

async function clear() {
  await stop();
  const before = conversation.clear();
  transcript.show(conversation.messages);
  composer.focus();
  showNotice("The chat was cleared.", {
    label: "Undo",
    act: () => {
      conversation.restore(before);
      transcript.show(conversation.messages);
    },
  });
}

/** The name in the bar and the facts in the pane follow what is loaded. */
function showModel(name) {
  const facts = phase() === "idle" ? null : engine.facts();
  document.getElementById("loaded-name").textContent = facts ? (name ?? modelName(facts.metadata)) : "";
  runPane.showFacts(facts, null);
  runPane.showUsage(null);
}

/** Said before anything is loaded, since the cause lies outside the page. */
function warnWithoutWebGpu() {
  if (!isSecureContext) {
    showNotice("Browsers switch WebGPU off on pages opened over plain http. Open this page over https, or from localhost.");
  } else if (!navigator.gpu) {
    showNotice("This browser offers no WebGPU, so a model can only run on the processor, which is slower.");
  }
}

addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  if (phase() === "answering") stop();
  else if (panes.isCovering) panes.close();
});
addEventListener("pagehide", () => {
  if (phase() === "answering") conversation.messages.at(-1).ended = "cancelled";
  conversation.save();
});
document.getElementById("unload").addEventListener("click", unload);
acceptDrops({ mayDrop: () => phase() === "idle", onFile: (file) => loader.chooseFile(file) });
startThemeButton();
warnWithoutWebGpu();
transcript.show(conversation.messages);
await loader.start();
