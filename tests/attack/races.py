"""Programs of attackers that exchange a name again and again while somebody uses it."""

SWAP_FOLDER_FOR_LINK = """
import os, sys
os.chdir(sys.argv[1])
name, target = sys.argv[2:]
print("ready", flush=True)
while True:
    try:
        os.rename(name, "aside")
        os.symlink(target, name)
    except OSError:
        continue
    # What was moved away cannot be removed: it is root's. It goes as far as the attacker can put it.
    try:
        os.unlink(name)
        os.rename("aside", name)
    except OSError:
        pass
"""
"""Arguments: folder, name in it, and where the link points. A name that appears there becomes a link, and back."""

PLANT_LINKS = """
import os, random, sys, time
folder, target, *names = sys.argv[1:]
print("ready", flush=True)
while True:
    for name in names:
        try:
            os.symlink(os.path.join(target, name), os.path.join(folder, name))
        except OSError:
            pass
    time.sleep(random.uniform(0, 0.003))
"""
"""Arguments: folder, where links shall point, names. Plants a link under each name, again and again.

It rests for as long as a write takes, now and then, so that its links come before, during and after one.
"""

EXCHANGE = """
import ctypes, os, sys
os.chdir(sys.argv[1])
os.mkdir("out")
os.symlink(sys.argv[2], "link")
exchange = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while not exchange(-100, b"out", -100, b"link", 2):
    pass
"""
"""Arguments: folder, and where a link points that takes turns with a folder ``out`` in it."""
