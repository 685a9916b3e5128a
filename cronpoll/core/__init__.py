"""The pure core: values and decisions. No I/O, no clock, no asyncio, no logging, no randomness."""
