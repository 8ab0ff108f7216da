/** What the bridge counts and times of one answer, as speeds. */

/**
 * Speeds of one answer, from the usage the bridge reports; null where it cannot be told.
 * @returns {{prompt: number | null, decode: number | null, firstMs: number | null}}  tokens per second, milliseconds
 */
export function speeds(usage) {
  if (!usage) return { prompt: null, decode: null, firstMs: null };
  const firstMs = usage.timeToFirstTokenMs ?? null;
  const promptMs = usage.promptMs ?? firstMs;
  const decodeMs = usage.decodeMs ?? (promptMs === null ? null : usage.durationMs - promptMs);
  const evaluated = usage.promptTokens - (usage.cachedPromptTokens ?? 0);
  return {
    prompt: evaluated > 0 && promptMs > 0 ? evaluated / (promptMs / 1000) : null,
    decode: usage.completionTokens > 1 && decodeMs > 0 ? usage.completionTokens / (decodeMs / 1000) : null,
    firstMs,
  };
}
