"""Derives the known answers of section 18.6 of docs/wire.md with other implementations: HKDF, AES-GCM,
ChaCha20-Poly1305, X25519 and Ed25519 of 'cryptography', the handshake of 'noiseprotocol'. Reads the page from standard
input.
"""

import hashlib
import sys

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from noise.connection import Keypair, NoiseConnection

PATTERN = b"Noise_XXpsk3_25519_AESGCM_SHA256"


def read_answers(page):
    """Returns the values in the order of the page, as a list for each name."""
    answers, name = {}, None
    for line in page.split("```known-answers\n")[1].split("```")[0].splitlines():
        if not line.startswith(" "):
            name, _, line = line.partition(" ")
            answers.setdefault(name, []).append("")
        answers[name][-1] += line.strip()
    return {name: [bytes.fromhex(text) for text in values] for name, values in answers.items()}


def expand(secret, info, count):
    return HKDFExpand(algorithm=hashes.SHA256(), length=count, info=info).derive(secret)


def handshake_key(group, epoch):
    return expand(answers["realm-secret"][0], b"seqcast 1 handshake\0" + group + epoch, 36)


compared = 0


def compare(name, documented, derived):
    global compared
    compared += 1
    if documented != derived:
        sys.exit(f"{name}: the page has {documented.hex()}, another implementation derives {derived.hex()}")


answers = read_answers(sys.stdin.read())
realm_secret = answers["realm-secret"][0]
psk = expand(realm_secret, b"seqcast 1 psk", 32)
compare("psk", answers["psk"][0], psk)

secrets = []
for side in (0, 1):
    mode, group, epoch = (answers[name][side] for name in ("mode", "group", "epoch"))
    receiver = answers["epoch"][1 - side]
    sender = b"\0" + mode + b"\0" + group + epoch
    group_secret = answers["group-secret"][side]
    pairwise_secret = answers["pairwise-secret"][side]
    compare("handshake-key", answers["handshake-key"][side], handshake_key(group, epoch))
    keys = {
        "data": expand(group_secret, b"seqcast 1 data" + sender, 36),
        "control": expand(group_secret, b"seqcast 1 control" + sender, 36),
        "directed": expand(pairwise_secret, b"seqcast 1 directed" + sender + receiver, 36),
        "pairwise-control": expand(pairwise_secret, b"seqcast 1 pairwise control" + sender + receiver, 36),
    }
    cipher = AESGCM if mode == b"\1" else ChaCha20Poly1305
    for name, key in keys.items():
        compare(f"{name}-key", answers[f"{name}-key"][side], key)
        datagram = answers[f"open-{name}"][side]
        header_bytes = 44 if name == "directed" else 36
        flags = b"\1" if name in ("directed", "pairwise-control") else b"\0"
        header = datagram[:3] + mode + datagram[4:5] + flags + datagram[6:header_bytes]
        nonce = key[32:] + datagram[16:24]
        sealed = header + cipher(key[:32]).encrypt(nonce, datagram[header_bytes:-4], header)
        compare(f"sealed-{name}", answers[f"sealed-{name}"][side], sealed)
    static_public = X25519PrivateKey.from_private_bytes(answers["static-private"][side]).public_key().public_bytes_raw()
    compare("certificate", answers["certificate"][side][:32], static_public)
    numbers, origin = answers["next-numbers"][side], answers["origin"][side]
    secrets.append(mode + b"\0" + group_secret + pairwise_secret + numbers + origin)


def connection(side):
    noise = NoiseConnection.from_name(PATTERN)
    noise.set_as_initiator() if side == 0 else noise.set_as_responder()
    noise.set_keypair_from_private_bytes(Keypair.STATIC, answers["static-private"][side])
    noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, answers["ephemeral-private"][side])
    noise.set_psks(psk=psk)
    noise.set_prologue(b"seqcast 1 prologue\0" + answers["group"][0] + b"".join(answers["epoch"]))
    noise.start_handshake()
    return noise


def open_handshake(name, step):
    """Returns the body of a datagram of the handshake, and its nonce."""
    datagram, group = answers[name][0], answers["group"][0]
    sender, receiver = answers["epoch"] if step in (0, 2, 4, 7) else reversed(answers["epoch"])
    expected = b"SC\1\1\3" + bytes([step]) + group + sender + (bytes(8) if name in ("hello", "signature") else receiver)
    compare(f"header of {name}", datagram[:24], expected)
    nonce = datagram[24:36]
    return AESGCM(handshake_key(group, sender)[:32]).decrypt(nonce, datagram[36:], datagram[:36]), nonce


STEPS = ("request", "cookie", "init", "response", "final", "keys", "hello", "signature")
bodies = {name: open_handshake(name, step) for step, name in enumerate(STEPS)}
address = bytes.fromhex("00000000000000000000ffff0a000060") + (4000).to_bytes(2, "big")
compare("hello", bodies["hello"][0], address.ljust(28, b"\0"))
compare("request", bodies["request"][0], bytes(28))
cookie, request_nonce = bodies["cookie"][0], bodies["request"][1]
compare("cookie", cookie[:12], request_nonce)
initiator, responder = connection(0), connection(1)
message = initiator.write_message()
compare("init", bodies["init"][0], (cookie[12:] + len(message).to_bytes(2, "big") + message).ljust(1148, b"\0"))
responder.read_message(message)
message = responder.write_message(answers["certificate"][1])
compare("response", bodies["response"][0], bytes(message))
initiator.read_message(message)
message = initiator.write_message(secrets[0] + answers["certificate"][0])
compare("final", bodies["final"][0], bytes(message))
responder.read_message(message)
compare("keys", bodies["keys"][0], bytes(responder.encrypt(secrets[1])))

signing_key = Ed25519PrivateKey.from_private_bytes(answers["signing-seed"][0])
compare("signing-key", answers["signing-key"][0], signing_key.public_key().public_bytes_raw())
datagram = answers["open-data"][0]
content = datagram[16:24] + hashlib.sha256(datagram[:-4]).digest()[:8]
context = b"seqcast 1 origin\0" + answers["group"][0] + answers["epoch"][0]
compare("signature", bodies["signature"][0], content + signing_key.sign(context + content))
print(f"{compared} values compared")
