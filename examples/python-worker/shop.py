"""An order: a payment that a person approves, a parcel by a child, a wait of an hour, and a signal."""

from datetime import timedelta

from pydantic import BaseModel

from longhaul.worker import App, Context, Permanent, Rejected, current

app = App("shop")


class Order(BaseModel):
    id: int
    cents: int


class Receipt(BaseModel):
    order: int
    charge: str
    parcel: str
    stars: int


@app.tool(effect="idempotent")
async def charge(order: int, cents: int) -> str:
    ctx = current()
    assert ctx is not None
    # The payment service gets `ctx.idempotency_key`: a repeated call charges nothing.
    return f"charge {ctx.idempotency_key[-4:]} of {cents} cents"


@app.task
def pack(order: int) -> str:
    return f"parcel {order}"


@app.task(retry=[1, 5, 30], deadline=timedelta(days=30), concurrency=50)
async def buy(ctx: Context, order: Order) -> Receipt:
    total = await ctx.step("tax", lambda cents: cents + cents // 10, order.cents)
    try:
        decision = await ctx.approve("pay", {"cents": total}, text=f"Pay {total} cents?", expires=timedelta(days=2))
    except Rejected as rejected:
        raise Permanent("not_paid", rejected.reason or "rejected") from rejected
    paid = await charge(order.id, decision.arguments["cents"])
    child = await ctx.spawn("pack", pack, order.id)
    parcel = await child.result()
    ctx.log("sent", parcel=parcel)
    await ctx.sleep(timedelta(hours=1))
    rating = await ctx.signal("rating", timeout=timedelta(days=7))
    return Receipt(order=order.id, charge=paid, parcel=parcel, stars=rating["stars"])
