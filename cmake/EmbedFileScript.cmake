# Writes OUTPUT so that it defines dynamiccl::embedded::NAME with the bytes of INPUT.
file(READ "${INPUT}" _hex HEX)
string(LENGTH "${_hex}" _hex_length)
math(EXPR _bytes "${_hex_length} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," _list "${_hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" _list "${_list}")
file(WRITE "${OUTPUT}"
"#include \"embedded/${NAME}.hpp\"
namespace dynamiccl::embedded {
namespace {
constexpr unsigned char kBytes[] = {
${_list}0};
}
extern const std::string_view ${NAME};
const std::string_view ${NAME}{reinterpret_cast<const char*>(kBytes), ${_bytes}};
}
")
