import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import * as bridgeModule from '../../web/llama_webgpu_bridge.js';
import { METHOD_RULES } from '../../web/bridge/operations.js';

const declared = await readFile(new URL('../../web/llama_webgpu_bridge.d.ts', import.meta.url), 'utf8');
const { LlamaWebGpuBridge } = bridgeModule;

/** Names at the first level of the declared class. */
function declaredMembers() {
  const body = declared.slice(declared.indexOf('export class LlamaWebGpuBridge {'));
  const members = body.slice(0, body.indexOf('\n}')).matchAll(/^ {2}(static readonly )?(\w+)[(:]/gm);
  return [...members].map(([, isStatic, name]) => (isStatic ? `static ${name}` : name)).sort();
}

test('the declarations name every public member of the class, and no other', () => {
  const statics = Object.getOwnPropertyNames(LlamaWebGpuBridge).filter((name) => name.startsWith('supports'));
  const members = [...Object.getOwnPropertyNames(LlamaWebGpuBridge.prototype), ...statics.map((name) => `static ${name}`)];
  assert.deepEqual(declaredMembers(), members.sort());
});

test('the declarations name every export', () => {
  for (const name of Object.keys(bridgeModule)) assert.match(declared, new RegExp(`export (class|function) ${name}\\b`));
});

test('every method with rules is a member, and every promise but the cache and the end of the bridge has rules', () => {
  const withoutObjects = declared.slice(declared.indexOf('class LlamaWebGpuBridge {') + 25).replaceAll(/\{[^{}]*\}/g, '');
  const promised = [...withoutObjects.matchAll(/^ {2}(\w+)\([^;]*Promise</gm)].map(([, name]) => name);
  const unqueued = ['prefetchModelToCache', 'evictModelFromCache', 'listCache', 'dispose'];
  assert.deepEqual(Object.keys(METHOD_RULES).sort(), promised.filter((name) => !unqueued.includes(name)).sort());
});
