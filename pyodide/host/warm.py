"""Imports what programs commonly import. In a memory snapshot that costs nothing, and it saves
the first import later."""

import abc, argparse, array, ast, base64, bisect, calendar, collections.abc, configparser, contextlib, copy, csv, dataclasses, datetime
import decimal, difflib, enum, fractions, functools, glob, gzip, hashlib, heapq, html, inspect, io, itertools, json, logging, math, operator
import os.path, pathlib, pickle, platform, pprint, random, re, shutil, statistics, string, struct, tempfile, textwrap, threading, traceback
import types, typing, unicodedata, unittest, urllib.parse, uuid, warnings, weakref, xml.etree.ElementTree, zipfile, zlib, zoneinfo
