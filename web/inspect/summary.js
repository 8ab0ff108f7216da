/** What follows from the tensor table: sizes per type and per layer. Knows nothing about the page. */

const LAYER = /^((?:\w+\.)?blk)\.(\d+)\./;
const GROUPS = [
  [/^token_embd|^token_types|^position_embd/, "embedding"],
  [/^output|^cls/, "output"],
];

const product = (shape) => shape.reduce((count, size) => count * size, 1);

/**
 * @param {Iterable<{name: string, dtype: string, shape: number[], nbytes: number}>} tensors
 * @returns {{parameters: number, nbytes: number, largest: object | null,
 *   types: {name: string, tensors: number, parameters: number, nbytes: number, color: string}[],
 *   layers: Group[], others: Group[]}}  types by size, the largest first; layers in order; others are outside the layers.
 *   A Group is {label: string, tensors: number, nbytes: number, types: Map<string, number>}, bytes for each type
 */
export function summarise(tensors) {
  const types = new Map();
  const layers = new Map();
  const others = new Map();
  let largest = null;
  for (const tensor of tensors) {
    const type = entry(types, tensor.dtype, () => ({ name: tensor.dtype, tensors: 0, parameters: 0, nbytes: 0 }));
    type.tensors += 1;
    type.parameters += product(tensor.shape);
    type.nbytes += tensor.nbytes;
    const [, part, digits] = LAYER.exec(tensor.name) ?? [];
    const label = part ? `${part === "blk" ? "layer" : part} ${digits}` : groupOf(tensor.name);
    const group = entry(part ? layers : others, label, () => ({ label, part, index: Number(digits), tensors: 0, nbytes: 0, types: new Map() }));
    group.tensors += 1;
    group.nbytes += tensor.nbytes;
    group.types.set(tensor.dtype, (group.types.get(tensor.dtype) ?? 0) + tensor.nbytes);
    if (!largest || tensor.nbytes > largest.nbytes) largest = tensor;
  }
  const bySize = (a, b) => b.nbytes - a.nbytes;
  const sorted = [...types.values()].sort(bySize);
  return {
    parameters: sum(sorted, "parameters"),
    nbytes: sum(sorted, "nbytes"),
    largest,
    types: sorted.map((type, i) => ({ ...type, color: `var(--type-${Math.min(i, 7)})` })),
    layers: [...layers.values()].sort((a, b) => a.part.localeCompare(b.part) || a.index - b.index),
    others: [...others.values()].sort(bySize),
  };
}

const groupOf = (name) => GROUPS.find(([pattern]) => pattern.test(name))?.[1] ?? "others";

function entry(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
