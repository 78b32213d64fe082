// Numbers and times as a person reads them, in one way everywhere.

const whole = new Intl.NumberFormat("en-US");

export function count(number) {
  return number === null || number === undefined ? "–" : whole.format(number);
}

// Short, for axes and tiles: 950, 1.2k, 34k, 5.6M.
export function short(number) {
  const size = Math.abs(number);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) {
      const value = number / unit;
      return `${Math.abs(value) < 10 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)}${name}`;
    }
  }
  return size < 10 && !Number.isInteger(number) ? number.toFixed(1) : whole.format(Math.round(number));
}

export function rate(number) {
  return number === null || number === undefined ? "–" : `${short(number)}/s`;
}

export function bytes(number) {
  return number < 1024 ? `${number} B` : `${short(number / 1024 >= 1024 ? number / 1048576 : number / 1024)} ${number >= 1048576 ? "MiB" : "KiB"}`;
}

export function duration(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

export function clock(ms) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

// In the person's own time zone, with its date; what is no time stays as it was said.
export function moment(said) {
  if (said === null || said === undefined || said === "") return "–";
  const at = new Date(said);
  if (Number.isNaN(at.getTime())) return String(said);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(at)}.${pad(at.getMilliseconds(), 3)}`;
}

export function ago(ms, now = Date.now()) {
  return ms > now ? `in ${duration(ms - now)}` : `${duration(now - ms)} ago`;
}

export function plural(number, word, words = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : words}`;
}
