"""Whoever works on documents in LibreOffice, by UNO and without a desktop: run by the system's Python with UNO.

On stdin a list of [source, target, filters, program]: the source is opened by the first filter, the program's lines do
something to `doc`, and each further filter saves it and, but for the last, has it opened again.
"""

import json
import os
import subprocess
import sys
import time

import uno
from com.sun.star.beans import PropertyValue
from com.sun.star.connection import NoConnectException
from com.sun.star.lang import DisposedException

SCRIPT = "vnd.sun.star.script:Tools.Misc.Nothing?language=Basic&location=application"


def named(**values):
    return tuple(PropertyValue(Name=name, Value=value) for name, value in values.items())


def paragraph(doc, at):
    return [*doc.Text][at]


def at_end(doc):
    cursor = doc.Text.createTextCursor()
    cursor.gotoEnd(False)
    return cursor


def cell(doc, name):
    return doc.Sheets.getByIndex(0).getCellRangeByName(name)


def struct(kind, **values):
    made = uno.createUnoStruct(f"com.sun.star.{kind}")
    for name, value in values.items():
        setattr(made, name, value)
    return made


def box(doc, page, at):
    return doc.DrawPages.getByIndex(page).getByIndex(at)


def drawn(doc, page, kind):
    shape = doc.createInstance(f"com.sun.star.drawing.{kind}")
    page.add(shape)
    shape.Position, shape.Size = struct("awt.Point", X=2000, Y=2000), struct("awt.Size", Width=5000, Height=2000)
    return shape


def added(doc, page, kind="TextShape", text="ADDED"):
    shape = drawn(doc, doc.DrawPages.getByIndex(page), kind)
    shape.String = text
    return shape


def control(doc, page, kind, **values):
    """A control of a form."""
    model = doc.createInstance(f"com.sun.star.form.component.{kind}")
    for name, value in values.items():
        setattr(model, name, value)
    drawn(doc, page, "ControlShape").Control = model


def bound(owner, event, **values):
    """What is done at an event of `owner`."""
    uno.invoke(owner.Events, "replaceByName", (event, uno.Any("[]com.sun.star.beans.PropertyValue", named(**values))))


def glowing(doc, page):
    """A picture of nothing, with an effect."""
    drawn(doc, page, "GraphicObjectShape").GlowEffectRadius = 500


def opened(profile):
    """LibreOffice's process and its desktop."""
    flags = ["--headless", "--norestore", "--nologo", "--nodefault", "--accept=pipe,name=hands;urp;"]
    office = subprocess.Popen(
        ["/usr/lib/libreoffice/program/soffice.bin", f"-env:UserInstallation=file://{profile}", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    local = uno.getComponentContext()
    resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
    while True:
        try:
            context = resolver.resolve("uno:pipe,name=hands;urp;StarOffice.ComponentContext")
            break
        except NoConnectException:
            time.sleep(0.05)
    return office, context


def worked(context, source, target, filters, program):
    """Do one job."""
    desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
    kind, path = filters[0], source
    for number, next_kind in enumerate(filters[1:]):
        doc = desktop.loadComponentFromURL(f"file://{path}", "_blank", 0, named(Hidden=True, FilterName=kind))
        if number == 0:
            exec(program, globals() | {"doc": doc, "context": context})
        kind, path = next_kind, target if number == len(filters) - 2 else f"{target}.{number}"
        # It stays open: LibreOffice 7.4 often aborts where a presentation with a comment made by UNO is closed.
        doc.storeToURL(f"file://{path}", named(FilterName=next_kind))


def main() -> None:
    profile, jobs = sys.argv[1], json.load(sys.stdin)
    office, context = opened(profile)
    for job in jobs:
        try:
            worked(context, *job)
        except DisposedException:  # LibreOffice 7.4 aborts now and then; a second time is an error
            office.wait()
            office, context = opened(profile)
            worked(context, *job)
    office.kill()
    office.wait()
    os._exit(0)  # UNO's threads may crash an interpreter that takes itself down


main()
