// Package tritoncmd has the command rutter triton check, which holds a NAPI, CNAPI or VMAPI,
// of Triton or of Rutter, against what is documented of them, and two against each other.
package tritoncmd
