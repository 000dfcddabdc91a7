package api

import "rutter/api/internal/writestream"

// WriteWindow shows the bound to the tests from outside.
const WriteWindow = writestream.Window
