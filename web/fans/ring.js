// Alerts a fan who was called while elsewhere: a tone, a notification if allowed, and a blinking title.
import { announce, byId, show, trouble } from "./dom.js";

const TONES_HZ = [660, 880];
const SOUND_LATER_MS = 400;
const TONE_S = 0.35;
const SHAKE_MS = [200, 120, 200];
let sound = null;

/** Called from a click: browsers allow sound only after one. Not at once: making it would hold up the answer to the click. */
export function mayRing() {
  const Sound = window.AudioContext;
  if (!Sound) return;
  setTimeout(() => {
    sound ??= new Sound();
    sound.resume().catch(() => {});
  }, SOUND_LATER_MS);
}

/** Offers notifications if the browser has them and the fan has not decided yet. */
export function offerNotification() {
  const button = byId("tell-me");
  show(button, "Notification" in window && window.isSecureContext && Notification.permission === "default");
  button.onclick = async () => {
    mayRing();
    const answer = await Notification.requestPermission();
    show(button, false);
    trouble(answer === "granted" ? texts.will_be_told : null, "calm");
  };
}

/** Rings once, and blinks until the page is visible; with reduced motion the title stays still. */
export function ring(text, showName) {
  document.title = text;
  announce(text);
  play();
  shake();
  notify(text, showName);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const timer = setInterval(() => {
    if (!still) document.title = document.title === text ? "● ● ●" : text;
    if (document.hidden) return;
    clearInterval(timer);
    document.title = `${showName} · Onsale`;
  }, 1000);
}

function shake() {
  if (navigator.userActivation?.hasBeenActive) navigator.vibrate?.(SHAKE_MS);
}

function play() {
  if (sound?.state !== "running") return;
  TONES_HZ.forEach((frequency, n) => {
    const [tone, volume, at] = [sound.createOscillator(), sound.createGain(), sound.currentTime + n * TONE_S];
    tone.frequency.value = frequency;
    volume.gain.setValueAtTime(0.2, at);
    volume.gain.exponentialRampToValueAtTime(0.001, at + TONE_S);
    tone.connect(volume).connect(sound.destination);
    tone.start(at);
    tone.stop(at + TONE_S);
  });
}

function notify(text, showName) {
  if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
  try {
    const told = new Notification(text, { body: showName, tag: `onsale:${location.pathname}` });
    told.onclick = () => window.focus();
  } catch {
    // some phones allow notifications only from a service worker: the title and the tone remain
  }
}
