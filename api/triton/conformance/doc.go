// Package conformance has the documented calls and refusals of NAPI, CNAPI, VMAPI and their
// changefeed as data, with the source of each, and runs them against any server of these
// interfaces.
//
// It owns the form of the data (README.md in folder data says how to write a row), its
// strict reading, the runner with its limits, and the reports. The data is embedded: one
// YAML file for each group of rows. It knows nothing of how Rutter serves the interfaces.
package conformance
