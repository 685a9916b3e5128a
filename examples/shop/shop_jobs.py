"""Callbacks of the shop's housekeeping. What they do is only hinted at; how they are run is in
tasks.toml."""

import asyncio


async def expire_carts(*, older_than_minutes: int) -> None:
    """Runs on the daemon's loop: it must await, never block."""
    print(f"carts older than {older_than_minutes} minutes are expired")
    await asyncio.sleep(0)


async def ask_payment_provider() -> None:
    """An error here is a failed run: it is retried after five seconds, then the next minute comes
    anyway."""
    await asyncio.sleep(0)


def make_invoices() -> None:
    """A plain function, in an interpreter of its own."""
    print("invoices made")


def send_newsletter(audience: str) -> None:
    print(f"newsletter sent to {audience}")
