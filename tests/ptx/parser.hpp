// A PTX text as functions of statements: names are resolved, opcodes are not looked at.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ptx {

enum class Type : std::uint8_t {
    none,
    pred,
    b8,
    b16,
    b32,
    b64,
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    f16,
    f16x2,
    bf16,
    bf16x2,
    f32,
    f64
};
Type type_of(std::string_view name);  // "u32"; none: is no type
int bytes_of(Type type);

struct Operand {
    enum class Kind {
        none,
        place,    // a register: index into Function::registers
        special,  // %tid.x: name
        integer,  // value
        single,   // value: the bits of an fp32 number
        twofold,  // value: the bits of an fp64 number
        symbol,   // a variable, parameter, label or function: name
        list,     // {a, b} or (a, b)
        address,  // [base + offset]: parts[0] is a register or a symbol, none if absolute
        pair,     // d|p
        sink,     // _
    } kind = Kind::none;
    bool negated = false;  // !p
    std::uint32_t index = 0;
    std::uint64_t value = 0;
    std::int64_t offset = 0;
    std::string name;
    std::vector<Operand> parts;
};

struct Location {
    int file = 0, line = 0;
};

struct Statement {
    int line = 0;  // of the PTX
    Location location;
    std::string_view opcode;  // with modifiers; empty: a label
    std::string label;
    std::int64_t guard = -1;  // register index
    bool guard_negated = false;
    std::uint64_t used_bytes = ~std::uint64_t{0};  // .pragma "used_bytes_mask" in front of a load
    std::vector<Operand> operands;
};

struct Variable {
    enum class Space { shared, local, parameter, global } space = Space::shared;
    std::string name;
    std::uint32_t bytes = 0, alignment = 1;
    bool open_ended = false;  // extern T name[]
};

struct Function {
    std::string name;
    bool entry = false, defined = false;
    std::vector<Variable> parameters, results;
    std::vector<Type> registers;
    std::vector<Variable> variables;  // local ones; names are unique
    std::vector<Statement> statements;
    std::uint32_t most_threads = 0;
};

struct ParsedModule {
    std::string target;
    std::vector<Function> functions;
    std::vector<Variable> variables;
    std::map<int, std::string> files;
};

// Statements refer to `text`. usage_error: it cannot be read, with the line.
ParsedModule parse(std::string_view text);

}  // namespace lockstep::ptx
