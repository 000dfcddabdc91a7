package api

// WriteWindow shows the bound to the tests from outside.
const WriteWindow = writeWindow
