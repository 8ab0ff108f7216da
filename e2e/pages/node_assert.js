// As much of node:assert/strict as the suites of tests/js use.

class AssertionError extends Error {}

const shown = (value) => {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
};

function fail(message = 'failed') {
  throw new AssertionError(message);
}

function ok(value, message = `${shown(value)} is not true`) {
  if (!value) fail(message);
}

function isDeepEqual(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return false;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (ArrayBuffer.isView(a)) return a.length === b.length && a.every((value, i) => Object.is(value, b[i]));
  if (a instanceof Set) return a.size === b.size && [...a].every((value) => b.has(value));
  if (a instanceof Error && a.message !== b.message) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && isDeepEqual(a[key], b[key]));
}

/** Whether an error is what a test expects: a pattern for its text, a check, or fields. */
function checkError(error, expected) {
  if (expected === undefined) return;
  if (expected instanceof RegExp) ok(expected.test(String(error)), `${error} does not match ${expected}`);
  else if (typeof expected === 'function') ok(expected(error), `${error} is another error`);
  else {
    for (const [key, value] of Object.entries(expected)) {
      const fits = value instanceof RegExp ? value.test(error[key]) : isDeepEqual(error[key], value);
      ok(fits, `the error's ${key} is ${shown(error[key])}, not ${value instanceof RegExp ? value : shown(value)}`);
    }
  }
}

export default {
  fail,
  ok,
  equal: (a, b, message) => ok(Object.is(a, b), message ?? `${shown(a)} is not ${shown(b)}`),
  notEqual: (a, b, message) => ok(!Object.is(a, b), message ?? `it is ${shown(a)}`),
  deepEqual: (a, b, message) => ok(isDeepEqual(a, b), message ?? `${shown(a)} is not ${shown(b)}`),
  notDeepEqual: (a, b, message) => ok(!isDeepEqual(a, b), message ?? `it is ${shown(a)}`),
  match: (text, pattern, message) => ok(pattern.test(text), message ?? `${shown(text)} does not match ${pattern}`),
  throws(call, expected) {
    let error;
    try {
      call();
    } catch (thrown) {
      error = thrown;
    }
    ok(error !== undefined, 'nothing was thrown');
    checkError(error, expected);
  },
  async rejects(promise, expected) {
    let error;
    try {
      await (typeof promise === 'function' ? promise() : promise);
    } catch (thrown) {
      error = thrown;
    }
    ok(error !== undefined, 'it did not reject');
    checkError(error, expected);
  },
};
