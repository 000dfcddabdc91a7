// Package configcmd has the file of settings and the command rutter config. One file
// may hold the settings of every role of a machine, each in a section of its own; its
// keys are the names of the flags. The order of precedence is: flag, variable, file,
// default.
package configcmd
