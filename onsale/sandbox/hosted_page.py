"""The hosted payment page: the amount and three buttons. Plain HTML, no script."""

from html import escape
from string import Template

from onsale.sandbox.charge import Charge
from shared.rules.money import format_money

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sandbox payment</title>
<style>
  body { font: 1.1rem/1.5 system-ui, sans-serif; max-width: 26rem; margin: 10vh auto; padding: 0 1rem; }
  strong { font-size: 2rem; display: block; }
  button, a { display: block; width: 100%; box-sizing: border-box; font: inherit; padding: .8rem; margin: .6rem 0; }
</style>
<main>
  <h1>Sandbox payment</h1>
  <p>Order $reference <strong>$amount</strong> No real money moves here.</p>
  $rest
</main>
</html>
""")

BUTTONS = """<form method="post">
    <button name="choice" value="pay">Pay</button>
    <button name="choice" value="decline">Decline</button>
    <button name="choice" value="cancel">Cancel</button>
  </form>"""


def page(charge: Charge) -> str:
    if charge.status == "requires_action":
        rest = BUTTONS
    else:
        back = f'<a href="{escape(charge.return_url)}">Back to the shop</a>' if charge.return_url else ""
        rest = f'<p role="status">This payment is {charge.status}.</p>{back}'
    amount = format_money(charge.amount_minor, charge.currency)
    return PAGE.substitute(reference=escape(charge.reference), amount=amount, rest=rest)
