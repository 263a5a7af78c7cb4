"""How many of the tokens Apple's library verifies in a second of processor time: apple.py FOLDER plain|cached SECONDS.

Its cache of chains only works together with online checks, and is filled here by an offline look at the chain: what is
measured then is a verification that finds its chain cached and asks nobody.
"""

import itertools
import json
import os
import sys
import time

import jwt
from appstoreserverlibrary.models.Environment import Environment
from appstoreserverlibrary.signed_data_verifier import SignedDataVerifier

folder, mode, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
with open(os.path.join(folder, "root.der"), "rb") as file:
    root = file.read()
with open(os.path.join(folder, "tokens"), encoding="ascii") as file:
    tokens = file.read().split()

verifier = SignedDataVerifier([root], mode == "cached", Environment.PRODUCTION, "com.example.app", 1)
if mode == "cached":
    certificates = jwt.get_unverified_header(tokens[0])["x5c"]
    chains = verifier._chain_verifier
    signed = json.loads(jwt.utils.base64url_decode(tokens[0].split(".")[1]))["signedDate"] // 1000
    chains.put_verified_public_key(certificates, chains.verify_chain(certificates, False, signed))

done = 0
begin = time.process_time()
for token in itertools.cycle(tokens):
    # Raises when it does not verify.
    verifier.verify_and_decode_signed_transaction(token)
    done += 1
    if time.process_time() - begin >= seconds:
        break
print(json.dumps({"perSecond": done / (time.process_time() - begin)}))
