// From a parsed function to a kernel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/instruction.hpp"

namespace lockstep::ptx {

// Shared variables of the module begin where the kernel's own end. usage_error: an instruction that is not known.
std::unique_ptr<Kernel> decode(const ParsedModule& module, const Function& function);

// The words of an opcode after its first: each must be taken by the one who decodes it.
class Modifiers {
  public:
    explicit Modifiers(std::string_view opcode);
    std::string_view base() const { return base_; }
    bool take(std::string_view word);
    // The first that is left, if it is a type; an error where it is not.
    Type type();
    Rounding rounding();  // .rn where nothing is said
    template <class T>
    bool take_one_of(std::initializer_list<std::pair<std::string_view, T>> words, T& value) {
        for (const auto& [word, meaning] : words)
            if (take(word)) {
                value = meaning;
                return true;
            }
        return false;
    }
    std::string_view rest() const { return left_.empty() ? std::string_view{} : left_.front(); }
    bool empty() const { return left_.empty(); }

  private:
    std::string_view base_;
    std::vector<std::string_view> left_;
};

class Decoder {
  public:
    Decoder(const ParsedModule& module, const Function& function);
    std::unique_ptr<Kernel> kernel();

    // For the functions that decode a family: the statement, its modifiers, and the instruction to fill in.
    const Statement& statement() const { return *statement_; }
    Modifiers& modifiers() { return *modifiers_; }
    Instruction& made() { return made_; }
    void set(Group group, Op op, Type type);
    const Operand& operand(std::size_t i) const;
    std::size_t operands() const { return statement_->operands.size(); }
    // A source or destination of `bytes` a lane; wider: a register may have more bits than the type.
    Slot slot(const Operand& operand, int bytes, bool wider = false);
    Slot predicate(const Operand& operand, bool& negated);
    int place_bytes(const Operand& operand) const;
    void address(const Operand& operand);
    std::uint32_t list(const Operand& operand, int bytes, std::size_t count, bool wider = false);
    std::uint32_t add_list(const std::vector<Slot>& slots);
    void set_offset_to_symbol(const Operand& operand);
    bool is_symbol_address(const Operand& operand) const { return operand.kind == Operand::Kind::symbol; }
    void branch_to(const std::string& label) { fixups_.push_back({kernel_->code.size(), label}); }
    void call();
    void leave();
    Kernel& result() { return *kernel_; }
    [[noreturn]] void unknown(std::string_view why) const;

  private:
    struct Instance {  // one inlined copy of a function
        const Function* function;
        std::vector<Slot> registers;
        std::map<std::string, std::pair<Space, std::uint32_t>, std::less<>> variables;  // offset in its space
        std::unordered_map<std::string, std::size_t> labels;
        std::vector<std::size_t> leaves;  // branches to the end
    };
    struct Fixup {
        std::size_t at;
        std::string label;
    };
    void inline_body(Instance& instance);
    void decode_statement(const Statement& statement);
    Slot new_slot(int bytes);
    Slot constant(int bytes, std::uint64_t value);
    void lay_out_shared(const Function& function);
    std::uint32_t place_local(std::uint32_t bytes, std::uint32_t alignment);

    const ParsedModule& module_;
    const Function& function_;
    std::unique_ptr<Kernel> kernel_;
    Instance* instance_ = nullptr;
    std::map<std::string, std::pair<Space, std::uint32_t>, std::less<>> module_variables_;
    std::map<std::pair<int, std::uint64_t>, Slot> constants_;
    std::map<std::string, Slot, std::less<>> specials_;
    std::vector<Fixup> fixups_;
    const Statement* statement_ = nullptr;
    Modifiers* modifiers_ = nullptr;
    Instruction made_;
    int depth_ = 0;
};

// A family of opcodes: all that begin with one word.
using DecodeFamily = void (*)(Decoder&);
using Families = std::unordered_map<std::string_view, DecodeFamily>;
void add_arithmetic_families(Families& families);
void add_memory_families(Families& families);
void add_collective_families(Families& families);

}  // namespace lockstep::ptx
