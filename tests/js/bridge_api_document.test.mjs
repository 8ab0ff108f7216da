// docs/api.md, the declarations and the class, held to each other.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { initBudgetMs, requestBudgetMs, stallBudgetMs } from '../../web/bridge/budgets.js';
import { DEFAULT_CACHE_NAME } from '../../web/bridge/model_cache.js';
import * as bridgeModule from '../../web/llama_webgpu_bridge.js';

const read = (path) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8');
const [document, declared] = await Promise.all([read('docs/api.md'), read('web/llama_webgpu_bridge.d.ts')]);
const { LlamaWebGpuBridge } = bridgeModule;

/** Names in backticks, each also without its arguments. */
function named(text) {
  return new Set([...text.matchAll(/`([^`\n]+)`/g)].map(([, code]) => code.replace(/^new /, '').replace(/\(.*$/s, '')));
}

/** Keys of a declared interface, those of nested objects left out. */
function keysOf(name) {
  const start = declared.indexOf(`export interface ${name} {`);
  assert.ok(start >= 0, `${name} is not declared`);
  const body = declared.slice(declared.indexOf('{', start) + 1, declared.indexOf('\n}', start));
  return [...body.matchAll(/^ {2}(\w+)\??[:(]/gm)].map(([, key]) => key);
}

/** The rows of the table under a heading: [names of the first column, the other columns]. */
function tableOf(name) {
  const start = document.indexOf(`#### \`${name}\``);
  assert.ok(start >= 0, `${name} has no table`);
  const [section] = document.slice(start + 1).split(/\n#{2,4} /);
  const rows = section.split('\n').filter((line) => line.startsWith('| `'));
  return rows.map((row) => {
    const [first, ...rest] = row.split('|').slice(1, -1);
    return { names: [...named(first)], columns: rest.map((text) => text.trim()) };
  });
}

const TABLES = [
  'LlamaWebGpuBridgeConfig', 'LoadModelOptions', 'CompletionOptions', 'CompletionUsage', 'ChatTemplateOptions', 'CacheEntry',
  'MemoryEstimate',
];

test('every member of the class and every export is described', () => {
  const known = named(document);
  const statics = Object.getOwnPropertyNames(LlamaWebGpuBridge).filter((name) => name.startsWith('supports'));
  const members = [...Object.getOwnPropertyNames(LlamaWebGpuBridge.prototype), ...statics, ...Object.keys(bridgeModule)];
  for (const name of members) assert.ok(name === 'constructor' || known.has(name), `${name} is not described`);
});

test('every heading of a member is a member', () => {
  for (const [, heading] of document.matchAll(/^### (.+)$/gm)) {
    for (const name of named(heading)) {
      const exists = name in LlamaWebGpuBridge.prototype || name in LlamaWebGpuBridge || name in bridgeModule;
      assert.ok(exists, `${name} does not exist`);
    }
  }
});

for (const name of TABLES) {
  test(`the table of ${name} has the declared keys, and no other`, () => {
    const described = tableOf(name).flatMap(({ names }) => names);
    assert.deepEqual([...described].sort(), keysOf(name).sort());
  });
}

test('defaults of time and place are those of the code', () => {
  const told = Object.fromEntries(tableOf('LlamaWebGpuBridgeConfig').flatMap(({ names, columns }) => names.map((n) => [n, columns[0]])));
  const budget = (method) => `\`${requestBudgetMs({}, method, [])}\``;
  assert.deepEqual(
    [told.workerRequestTimeoutMs, told.workerModelLoadTimeoutMs, told.workerMmprojLoadTimeoutMs, told.workerCompletionTimeoutMs],
    ['tokenize', 'loadModelFromUrl', 'loadMultimodalProjector', 'createCompletion'].map(budget),
  );
  assert.equal(told.workerTextToSpeechTimeoutMs, budget('synthesizeSpeech'));
  assert.equal(told.workerInitTimeoutMs, `\`${initBudgetMs({})}\``);
  assert.equal(told.workerGenerationStallTimeoutMs, `\`${stallBudgetMs({}, 'createCompletion')}\``);
  assert.equal(told.cacheName, `\`${DEFAULT_CACHE_NAME}\``);
});

test('what is beyond the documented API is marked, here as in the declarations', () => {
  const marked = [...declared.matchAll(/\/\*\* Beyond the documented API[^*]*\*\/\n {2}(\w+)/g)].map(([, name]) => name);
  const lines = document.split('\n');
  for (const name of marked.filter((found) => found in LlamaWebGpuBridge.prototype)) {
    const at = lines.findIndex((line) => line.startsWith('### ') && line.includes(`\`${name}(`));
    assert.ok(at >= 0 && lines.slice(at, at + 4).join(' ').includes('**+**'), `${name} is not marked`);
  }
  assert.ok(marked.length > 5);
});
