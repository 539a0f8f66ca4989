/** Whether the page stays as it is: neither the event feed nor a timer reads anything again. */
let paused = false;

export const isPaused = (): boolean => paused;

export function setPaused(isPaused: boolean) {
  paused = isPaused;
}
