// Amounts of money with the digits that the server counts by: those of a browser differ from ISO 4217 for some currencies.

/** The digits that are minor units, of the currencies that do not have two; the build reads `shared/rules/currencies.py`. */
declare const CURRENCY_DIGITS: Readonly<Record<string, number>>;

export const digitsOf = (currency: string): number => CURRENCY_DIGITS[currency] ?? 2;

/** Minor units as text: 1234 of EUR are €12.34, of JPY ¥1,234. */
export function written(minor: number, currency: string, locale?: string): string {
  const digits = digitsOf(currency);
  const style = { style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits } as const;
  return new Intl.NumberFormat(locale, style).format(minor / 10 ** digits);
}

/** The minor units of a typed amount such as 12.34; null if it is no number, or finer than the currency. */
export function minorOf(typed: string, currency: string): number | null {
  const digits = digitsOf(currency);
  const [, whole, part = ""] = typed.trim().match(/^(\d{1,12})(?:[.,](\d*))?$/) ?? [];
  if (whole === undefined || part.length > digits) return null;
  return Number(whole + part.padEnd(digits, "0"));
}
