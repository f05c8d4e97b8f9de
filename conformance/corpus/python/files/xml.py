# A small document.
import xml.etree.ElementTree as ET

root = ET.fromstring("<r><i id='1'>a</i><i id='2'>b</i></r>")
print([(i.get("id"), i.text) for i in root.iter("i")])
ET.SubElement(root, "i").text = "é"
ET.tostring(root)
