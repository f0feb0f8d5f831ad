"""``handoff session verify-release``."""

from __future__ import annotations

from handoff.cli import session_place as place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser(name: str) -> Parser:
    """The verb's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        f"session {name}",
        "Check a plugin's archive before anything of it is unpacked: its digest, its manifest, "
        "and every member. A link, a path that leads elsewhere, a member too many or one too "
        "few is refused.",
        examples="  handoff session verify-release hermes-handoff-0.1.0.tar.gz --sha256 DIGEST\n"
        "  handoff session verify-release hermes-handoff-0.1.0.tar.gz --extract plugins",
    )
    made.add_argument("archive", help="NAME-VERSION.tar.gz")
    made.add_argument(
        "--manifest", metavar="FILE", default="", help="default: MANIFEST.json beside the archive"
    )
    made.add_argument(
        "--sha256",
        metavar="DIGEST",
        default="",
        help="the archive's digest, from somewhere else than archive and manifest",
    )
    made.add_argument(
        "--extract",
        metavar="FOLDER",
        default="",
        help="then write what was checked into a new folder below this one",
    )
    made.set_defaults(profile="", host="")
    return made


def run(_name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    from handoff.cli.terminal import safe_line, size
    from handoff.sessions import release

    manifest = place.absolute(args.manifest) if args.manifest else ""
    found = release.verify(place.absolute(args.archive), manifest=manifest, sha256=args.sha256)
    path = release.extract(found, place.absolute(args.extract)) if args.extract else ""
    told = found.to_json()
    if not context.human:
        context.emit({**told, "path": path})
        return 0
    files = f"{told['members']} file{'' if told['members'] == 1 else 's'}"
    context.show(f"{found.name} {found.version}: {files}, {size(told['bytes'])}")
    context.show(f"  sha256 {found.sha256}")
    if not found.digest_given:
        context.show("  archive and manifest belong together; where they are from they can't say:")
        context.show("  compare the digest with the one that the release's page shows")
    if path:
        context.show(f"  written to {safe_line(path)}")
    return 0
