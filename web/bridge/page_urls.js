/** Where the page is; a worker or Node without a page resolves against the bridge module instead. */
export function pageUrl() {
  return globalThis.location?.href ?? import.meta.url;
}

/**
 * A URL as the page means it, made absolute for an engine that runs elsewhere; what is not a URL stays as it is.
 * @param {string} url
 */
export function absoluteUrl(url) {
  try {
    return new URL(url, pageUrl()).href;
  } catch {
    return url;
  }
}

/**
 * The source of a model: one URL, or the entries of a list without the empty ones.
 * @param {unknown} source
 * @returns {string | string[]}
 */
export function modelSource(source) {
  if (Array.isArray(source)) return source.map(trimmed).filter(Boolean).map(absoluteUrl);
  const url = trimmed(source);
  return url && absoluteUrl(url);
}

function trimmed(value) {
  return value == null ? '' : String(value).trim();
}
