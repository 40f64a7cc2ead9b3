package syslog

// Structured data, RFC 5424 section 6.3: one element or more,
//
//	[id name="value" name="value"][id]
//
// where '"', '\' and ']' within a value have a '\' before them.

// dataLen returns the length of the structured data that b begins with, or 0
// if that breaks a rule of section 6.3. Names may have any length and values
// any bytes: neither keeps a reader from finding its way.
func dataLen(b []byte) int {
	n := 0
	for n < len(b) && b[n] == '[' {
		element := elementLen(b[n:])
		if element == 0 {
			return 0
		}
		n += element
	}
	return n
}

// elementLen returns the length of the SD-ELEMENT that b begins with, which is
// a '[', or 0 if it is broken.
func elementLen(b []byte) int {
	n := 1 + span(b[1:], nameByte)
	if n == 1 {
		return 0
	}
	for n < len(b) && b[n] == ' ' {
		name := span(b[n+1:], nameByte)
		n += 1 + name
		if name == 0 || n+1 >= len(b) || b[n] != '=' || b[n+1] != '"' {
			return 0
		}
		n += len(`="`)
		value := valueLen(b[n:])
		if value < 0 {
			return 0
		}
		n += value + len(`"`)
	}
	if n == len(b) || b[n] != ']' {
		return 0
	}
	return n + 1
}

// valueLen returns the length of the PARAM-VALUE that b begins with, up to its
// closing quote, or -1 if it is not closed or holds a bare ']'.
func valueLen(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i
		case ']':
			return -1
		case '\\':
			if i+1 < len(b) && isEscaped(b[i+1]) {
				i++
			}
		}
	}
	return -1
}

// isEscaped reports whether c is a byte that a backslash escapes. Before any
// other a backslash stands for itself (section 6.3.3).
func isEscaped(c byte) bool { return c == '"' || c == '\\' || c == ']' }

// StructuredData returns h.Data as values by name by id, unescaped, or nil if
// there is none. Elements of one id are joined; of one name the last value is
// kept. It allocates, and nothing that it returns points into the message: it is
// for formats that take data apart, not for those that pass it on.
func (h *Header) StructuredData() map[string]map[string]string {
	d := h.Data
	if len(d) == 0 || dataLen(d) != len(d) {
		return nil
	}
	elements := make(map[string]map[string]string)
	for len(d) > 0 {
		id, rest := cutName(d[len("["):])
		d = rest
		params := elements[id]
		if params == nil {
			params = make(map[string]string)
			elements[id] = params
		}
		for d[0] == ' ' {
			name, rest := cutName(d[len(" "):])
			rest = rest[len(`="`):]
			n := valueLen(rest)
			params[name] = unescapeValue(rest[:n])
			d = rest[n+len(`"`):]
		}
		d = d[len("]"):]
	}
	return elements
}

// cutName splits b after the SD-NAME that it begins with.
func cutName(b []byte) (name string, rest []byte) {
	n := span(b, nameByte)
	return string(b[:n]), b[n:]
}

// unescapeValue returns the text of a PARAM-VALUE.
func unescapeValue(b []byte) string {
	text := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) && isEscaped(b[i+1]) {
			i++
		}
		text = append(text, b[i])
	}
	return string(text)
}

// AppendValue appends value as a PARAM-VALUE, without its quotes.
func AppendValue(dst, value []byte) []byte {
	for _, c := range value {
		if isEscaped(c) {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return dst
}
