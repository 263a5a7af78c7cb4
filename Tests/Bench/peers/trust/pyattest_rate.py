"""How many of the attestations pyattest judges good in a second of processor time: pyattest_rate.py FOLDER SECONDS."""

import asyncio
import base64
import json
import os
import sys
import time

from pyattest.attestation import Attestation
from pyattest.configs.apple import AppleConfig

folder, seconds = sys.argv[1], float(sys.argv[2])
# The challenge of the samples: 16 bytes.
NONCE = bytes(range(16))


def read_devices():
    with open(os.path.join(folder, "attestations"), encoding="ascii") as file:
        return [tuple(map(base64.b64decode, line.split())) for line in file]


async def main():
    with open(os.path.join(folder, "root.pem"), "rb") as file:
        root = file.read()
    devices = read_devices()
    done = 0
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        key, raw = devices[done % len(devices)]
        config = AppleConfig(key_id=key, app_id="ABCDE12345.com.example.app", production=True, root_ca=root)
        # Raises when it does not hold.
        await Attestation(raw, NONCE, config).verify()
        done += 1
    return done / (time.process_time() - begin)


print(json.dumps({"perSecond": asyncio.run(main())}))
