// A page's use of the bridge, as TypeScript checks it (tests/web/test_declarations.py). It is never run.

import {
  LlamaWebGpuBridge,
  EmbeddingError,
  enableBridgeWorkerHost,
  type CacheEntry,
  type CompletionUsage,
  type MemoryEstimate,
  type RankedDocument,
} from '../../web/llama_webgpu_bridge.js';

/** The example of the documented API, as it stands there. */
async function documented() {
  const bridge = new LlamaWebGpuBridge({
    coreModuleUrl: './webgpu_bridge/llama_webgpu_core.js',
    wasmUrl: './webgpu_bridge/llama_webgpu_core.wasm',
    workerUrl: './webgpu_bridge/llama_webgpu_bridge_worker.js',
    threads: 2,
  });

  try {
    await bridge.loadModelFromUrl('./models/model.gguf', {
      nCtx: 2048,
      nGpuLayers: 0,
      progressCallback: ({ loaded, total }) => {
        if (total) {
          console.log(`loaded ${Math.round((loaded / total) * 100)}%`);
        }
      },
    });

    const answer = await bridge.createCompletion('2+2 =', {
      nPredict: 16,
      temp: 0,
      onToken: (piece, currentText) => {
        const text = typeof piece === 'string' ? piece : new TextDecoder().decode(piece);
        console.log('token', text, currentText);
      },
    });
    console.log(answer);
  } finally {
    await bridge.dispose();
  }
}

async function beyond(bridge: LlamaWebGpuBridge) {
  const text: string = await bridge.createCompletion('x', {
    stop: ['\n', '</s>'],
    logitBias: { 5: -Infinity },
    nProbs: 2,
    signal: AbortSignal.timeout(1000),
    onUsage: ({ finishReason, promptMs }: CompletionUsage) => console.log(finishReason, promptMs),
    onToken: (piece, currentText, details) => console.log(piece.length, currentText?.length, details?.[0]?.top[0]?.logprob),
  });
  const entries: CacheEntry[] = await bridge.listCache({ cacheName: 'models' });
  const estimate: MemoryEstimate = await bridge.estimateMemory(['a', 'b'], { nCtx: 512 });
  const prompt: string = await bridge.renderChatTemplate([{ role: 'user', content: text }], { tools: [] });
  console.log(entries, estimate.totalBytes, prompt);
}

async function state(bridge: LlamaWebGpuBridge) {
  const tokens: number[] = await bridge.tokenize('x');
  const saved: Uint8Array = await bridge.stateSaveBytes(Int32Array.from(tokens));
  const restored: { tokens: number[] } = await bridge.stateLoadBytes(saved, 64);
  const written: true = await bridge.stateSaveFile('/a', restored.tokens);
  const scores = await bridge.scoreNextToken('x', { candidates: new Int32Array([1]), topK: 2, reusePromptPrefix: false });
  const vectors: number[][] = await bridge.embedBatch(['x', [{ type: 'text', text: 'y' }]], { normalize: false });
  const ranked: RankedDocument[] = await bridge.rank('x', new Set(['a', 'b']));
  const evicted: boolean = await bridge.evictModelFromCache('m.gguf');
  console.log(vectors[0]?.[0], ranked[0]?.score, written, scores.top[0]?.bytes.length, evicted);
}

async function refused(bridge: LlamaWebGpuBridge, error: unknown) {
  // @ts-expect-error a prompt is text
  await bridge.createCompletion(5);
  // @ts-expect-error stop strings are text
  await bridge.createCompletion('x', { stop: 5 });
  // @ts-expect-error seeds are numbers
  await bridge.createCompletion('x', { seed: 'random' });
  // @ts-expect-error states are bytes
  await bridge.stateLoadBytes('bytes');
  if (error instanceof EmbeddingError) console.log(error.code);
}

console.log(documented, beyond, state, refused, enableBridgeWorkerHost, window.LlamaWebGpuBridge);
