/** A fetch that gives the answers a test lists, however wrong they are: the page's half of tests/gguf/http_cases.json. */

const GOOD = {
  status: 206,
  headers: { 'Content-Range': 'bytes {start}-{end}/{size}', ETag: '"v1"' },
  body: 'range',
};

/** Request number i gets answers[i], the last one again and again; `requests` lists [Range, If-Range] of each. */
export function scriptedFetch(file, answers) {
  const requests = [];
  const inits = [];

  async function fetch(url, init = {}) {
    init.signal?.throwIfAborted();
    if (init.method === 'HEAD') {
      inits.push(init);
      return new Response(null, { status: 403 });
    }
    const given = answers[Math.min(requests.length, answers.length - 1)];
    const answer = { ...GOOD, ...(given === 'good' ? {} : given) };
    const headers = { ...GOOD.headers, ...(answer.set ?? {}) };
    inits.push(init);
    requests.push([init.headers?.Range ?? null, init.headers?.['If-Range'] ?? null]);

    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(init.headers?.Range ?? '') ?? [];
    const start = Number(first ?? 0);
    const end = last ? Number(last) : file.length - 1;
    const shown = new Headers();
    for (const [name, value] of Object.entries(headers)) {
      if (value === null) continue;
      shown.set(name, value.replace('{start}', start).replace('{end}', end).replace('{size}', file.length));
    }
    const bytes = bodyBytes(answer.body, file, start, end);
    const empty = answer.status === 204;
    const body = empty ? null : bodyStream(bytes, answer, init.signal);
    return new Response(body, { status: answer.status, statusText: answer.reason ?? '', headers: shown });
  }

  return { fetch, requests, inits };
}

function bodyBytes(body, file, start, end) {
  if (body === 'range') return file.subarray(start, end + 1);
  if (body === 'whole') return file;
  return Array.isArray(body) ? file.subarray(...body) : new TextEncoder().encode(body);
}

/** Chunks of `chunk` bytes (all at once unless given); breaks like a lost connection after `drop` bytes. */
function bodyStream(bytes, { drop, chunk = bytes.length || 1, stall = false }, signal) {
  const limit = drop ?? bytes.length;
  let at = 0;
  return new ReadableStream({
    start(controller) {
      signal?.addEventListener('abort', () => controller.error(signal.reason), { once: true });
    },
    pull(controller) {
      if (at < limit) {
        const next = Math.min(at + chunk, limit);
        controller.enqueue(bytes.slice(at, next));
        at = next;
      } else if (stall) return new Promise(() => {});
      else if (drop !== undefined) controller.error(new TypeError('network error'));
      else controller.close();
      return undefined;
    },
  }, { highWaterMark: 0 });
}

/** The file of the shared cases: 0, 1, … 255, 0, 1, … */
export function countingFile(size) {
  return Uint8Array.from({ length: size }, (_, i) => i & 255);
}

export async function concatenated(chunks) {
  const all = [];
  for await (const chunk of chunks) all.push(...chunk);
  return Uint8Array.from(all);
}
