/**
 * One thread of the CPU backend's team: an instance of the kernels on the shared memory that waits for jobs, asleep in
 * WebAssembly. It ends when a job is for no threads, or when it is terminated.
 */

self.onmessage = async ({ data: { module, memory, number, stackTop } }) => {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  exports.__stack_pointer.value = stackTop;
  let job = exports.current_job();
  self.postMessage('ready');
  try {
    do {
      job = exports.serve(number, job);
      if (number === 0) self.postMessage('done'); // nobody waits for it in the memory: see post_job
    } while (job & 255);
  } catch (error) {
    exports.abandon(); // or the others would wait for this thread for ever
    throw error;
  }
  self.close();
};
