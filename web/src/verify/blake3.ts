/** BLAKE3, as in its specification, for proofs that are checked without trusting the server. */

const IV = Uint32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const CHUNK = 1024;
const BLOCK = 64;
const [CHUNK_START, CHUNK_END, PARENT, ROOT] = [1, 2, 4, 8];

const rotate = (x: number, n: number) => (x >>> n) | (x << (32 - n));

function mix(v: Uint32Array, a: number, b: number, c: number, d: number, x: number, y: number) {
  v[a] = v[a]! + v[b]! + x;
  v[d] = rotate(v[d]! ^ v[a]!, 16);
  v[c] = v[c]! + v[d]!;
  v[b] = rotate(v[b]! ^ v[c]!, 12);
  v[a] = v[a]! + v[b]! + y;
  v[d] = rotate(v[d]! ^ v[a]!, 8);
  v[c] = v[c]! + v[d]!;
  v[b] = rotate(v[b]! ^ v[c]!, 7);
}

function compress(key: Uint32Array, block: Uint32Array, counter: number, length: number, flags: number): Uint32Array {
  const v = new Uint32Array(16);
  v.set(key);
  v.set(IV.subarray(0, 4), 8);
  v[12] = counter >>> 0;
  v[13] = Math.floor(counter / 2 ** 32);
  v[14] = length;
  v[15] = flags;
  let m = block;
  for (let round = 0; round < 7; round++) {
    mix(v, 0, 4, 8, 12, m[0]!, m[1]!);
    mix(v, 1, 5, 9, 13, m[2]!, m[3]!);
    mix(v, 2, 6, 10, 14, m[4]!, m[5]!);
    mix(v, 3, 7, 11, 15, m[6]!, m[7]!);
    mix(v, 0, 5, 10, 15, m[8]!, m[9]!);
    mix(v, 1, 6, 11, 12, m[10]!, m[11]!);
    mix(v, 2, 7, 8, 13, m[12]!, m[13]!);
    mix(v, 3, 4, 9, 14, m[14]!, m[15]!);
    m = Uint32Array.from(PERMUTATION, (place) => m[place]!);
  }
  for (let i = 0; i < 8; i++) v[i] = v[i]! ^ v[i + 8]!;
  return v.slice(0, 8);
}

function words(bytes: Uint8Array): Uint32Array {
  const padded = new Uint8Array(BLOCK);
  padded.set(bytes);
  const view = new DataView(padded.buffer);
  return Uint32Array.from({ length: 16 }, (_, i) => view.getUint32(i * 4, true));
}

function chunkHash(input: Uint8Array, counter: number, isRoot: boolean): Uint32Array {
  let value: Uint32Array = IV;
  const blocks = Math.max(1, Math.ceil(input.length / BLOCK));
  for (let i = 0; i < blocks; i++) {
    const block = input.subarray(i * BLOCK, (i + 1) * BLOCK);
    const isLast = i === blocks - 1;
    const flags = (i === 0 ? CHUNK_START! : 0) | (isLast ? CHUNK_END! | (isRoot ? ROOT! : 0) : 0);
    value = compress(value, words(block), counter, block.length, flags);
  }
  return value;
}

/** The left part has the largest power of two of chunks that leaves at least one byte. */
function treeHash(input: Uint8Array, firstChunk: number, isRoot: boolean): Uint32Array {
  if (input.length <= CHUNK) return chunkHash(input, firstChunk, isRoot);
  let left = CHUNK;
  while (left * 2 < input.length) left *= 2;
  const block = new Uint32Array(16);
  block.set(treeHash(input.subarray(0, left), firstChunk, false));
  block.set(treeHash(input.subarray(left), firstChunk + left / CHUNK, false), 8);
  return compress(IV, block, 0, BLOCK, PARENT! | (isRoot ? ROOT! : 0));
}

export function blake3(input: Uint8Array): Uint8Array {
  const hash = treeHash(input, 0, true);
  const bytes = new Uint8Array(32);
  const view = new DataView(bytes.buffer);
  hash.forEach((word, i) => view.setUint32(i * 4, word, true));
  return bytes;
}
