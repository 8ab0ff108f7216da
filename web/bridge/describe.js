/** A value as an error shows it: numbers and short words as they are, the rest by its kind. @param {unknown} value */
export function describe(value) {
  if (value === null || ['number', 'undefined', 'boolean', 'bigint'].includes(typeof value)) return String(value);
  if (typeof value === 'string' && value.length <= 20) return JSON.stringify(value);
  if (typeof value === 'string') return `a string of ${value.length} characters`;
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}
