package deflate

import "math/bits"

// The alphabets of RFC 1951 section 3.2.5.
const (
	endOfBlock    = 256 // of the literal/length codes, which begin with literals
	firstLength   = 257
	literalCodes  = 286
	distanceCodes = 30
)

// lengthCode is a length less 3 as a code, counted from firstLength, and its
// extra bits.
type lengthCode struct{ code, bits, extra uint8 }

var lengthCodes = makeLengthCodes()

func makeLengthCodes() (codes [maxLength - minLength + 1]lengthCode) {
	length := 0
	for code := range uint8(28) {
		bits := max(code, 4)/4 - 1
		for extra := range 1 << bits {
			codes[length] = lengthCode{code, bits, uint8(extra)}
			length++
		}
	}
	codes[maxLength-minLength] = lengthCode{code: 28}
	return codes
}

// distanceCode returns the code of a distance from 1 on, and the value of its
// extra bits.
func distanceCode(distance uint32) (code, extra uint32) {
	d := distance - 1
	if d < 4 {
		return d, 0
	}
	n := uint32(bits.Len32(d)) - 2
	return 2*n + d>>n, d & (1<<n - 1)
}

// distanceBits is the number of extra bits of a distance code.
func distanceBits(code int) uint32 { return uint32(max(code, 2)/2 - 1) }
