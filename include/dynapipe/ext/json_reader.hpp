#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

/// JSON that is no well-formed plan: a key, type or word is not what the format says. The text names file, field and
/// value. A file that is unreadable or no JSON at all is a plain `error`.
class malformed_plan : public error {
 public:
  using error::error;
};

namespace json_detail {

using json = nlohmann::json;

/// Lists and objects may stand this deep in one another: far more than any format of ours needs.
inline constexpr std::size_t deepest = 200;

/// "name:line:column" of a byte of a text.
[[nodiscard]] inline std::string position(const std::string& name, std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const std::size_t line_begin = before.rfind('\n') + 1;
  return name + ':' + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ':' +
         std::to_string(before.size() - line_begin + 1);
}

[[nodiscard]] inline std::string shorten(std::string text) {
  constexpr std::size_t most = 120;
  if (text.size() > most) text.replace(most, std::string::npos, "...");
  return text;
}

/// Finds where a text stops being JSON: takes every event and remembers the position of the error.
struct error_finder : nlohmann::json_sax<json> {
  std::size_t at = 0;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t where, const std::string&, const json::exception&) override {
    at = where;
    return false;
  }
};

/// @throws error with line and column, where brackets stand deeper in one another than `deepest`.
inline void require_shallow(std::string_view text, const std::string& name) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t k = 0; k < text.size(); ++k) {
    switch (text[k]) {
      case '"': quoted = !quoted; break;
      case '\\': k += quoted ? 1 : 0; break;
      case '[':
      case '{':
        if (!quoted && ++depth > deepest)
          throw error{position(name, text, k) + ": lists or objects stand more than " + std::to_string(deepest) +
                      " deep in one another"};
        break;
      case ']':
      case '}': depth -= !quoted && depth > 0 ? 1 : 0; break;
      default: break;
    }
  }
}

/// @throws error with line and column, where `text` is no JSON.
[[nodiscard]] inline json parse(std::string_view text, const std::string& name) {
  require_shallow(text, name);
  const auto fault = [&](const auto& reason) {
    error_finder found;
    json::sax_parse(text.begin(), text.end(), &found);
    const std::size_t at = found.at > 0 ? found.at - 1 : 0;
    return error{position(name, text, at) + ": no JSON: " + reason(at)};
  };
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::out_of_range&) {
    throw fault([](std::size_t) { return "a number that is too large"; });
  } catch (const json::exception&) {
    throw fault([&](std::size_t at) -> std::string {
      if (at >= text.size()) return "the text ends too early";
      if (text[at] > ' ' && text[at] <= '~') return std::string{"unexpected '"} + text[at] + '\'';
      return "unexpected byte " + std::to_string(static_cast<unsigned char>(text[at]));
    });
  }
}

/// A value of a JSON file that knows its place, so that every complaint names file, field and value. It refers to its
/// parent and to the file's name: keep those alive.
class reader {
 public:
  /// The whole file; complaints are `malformed_plan` where `of_plan` is true, otherwise `error`.
  reader(const json& value, const std::string& name, bool of_plan) : value_{&value}, name_{&name}, of_plan_{of_plan} {}

  [[noreturn]] void fail(const std::string& what) const {
    const std::string all = *name_ + ": " + (parent_ == nullptr ? "" : path() + ": ") + what;
    if (of_plan_) throw malformed_plan{all};
    throw error{all};
  }
  /// Fails with "must be `wanted`, is ...".
  [[noreturn]] void refuse(const std::string& wanted) const {
    fail("must be " + wanted + ", is " +
         (value_->is_structured() ? value_->is_array() ? std::string{"a list"} : std::string{"an object"}
                                  : shorten(value_->dump(-1, ' ', false, json::error_handler_t::replace))));
  }

  /// The value of a key of this object. Fails if it lacks the key.
  [[nodiscard]] reader operator[](const char* key) const {
    if (const std::optional<reader> found = find(key)) return *found;
    fail(std::string{"lacks the key \""} + key + '"');
  }
  [[nodiscard]] std::optional<reader> find(const char* key) const {
    if (!value_->is_object()) refuse("an object");
    const auto found = value_->find(key);
    if (found == value_->end()) return std::nullopt;
    return reader{*found, *this, key, 0};
  }
  /// Fails if this object has a key that is not in the list.
  void allow_only(std::initializer_list<std::string_view> keys) const {
    if (!value_->is_object()) refuse("an object");
    for (auto it = value_->begin(); it != value_->end(); ++it)
      if (std::find(keys.begin(), keys.end(), it.key()) == keys.end()) fail("unknown key \"" + shorten(it.key()) + '"');
  }

  [[nodiscard]] std::size_t size() const {
    if (!value_->is_array()) refuse("a list");
    return value_->size();
  }
  [[nodiscard]] reader element(std::size_t k) const { return reader{(*value_)[k], *this, nullptr, k}; }
  /// What `read` makes of each element of this list.
  template <class Read>
  [[nodiscard]] auto list(Read read) const {
    std::vector<decltype(read(*this))> all;
    all.reserve(size());
    for (std::size_t k = 0; k < value_->size(); ++k)
      all.push_back(read(element(k)));
    return all;
  }

  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  [[nodiscard]] const json& value() const { return *value_; }

  [[nodiscard]] std::int64_t integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t most = std::numeric_limits<std::int64_t>::max()) const {
    if (!value_->is_number_integer()) refuse("an integer");
    const bool beyond =
        value_->is_number_unsigned() &&
        value_->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const std::int64_t number = beyond ? 0 : value_->get<std::int64_t>();
    if (beyond || number < least || number > most)
      refuse("an integer in " + std::to_string(least) + ".." + std::to_string(most));
    return number;
  }
  [[nodiscard]] double number() const {
    if (!value_->is_number()) refuse("a number");
    return value_->get<double>();
  }
  [[nodiscard]] bool boolean() const {
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  [[nodiscard]] const std::string& text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get_ref<const std::string&>();
  }
  /// The value that is called so in `names`.
  template <class Enum, std::size_t N>
  [[nodiscard]] Enum word(const name_table<Enum, N>& names) const {
    if (const std::optional<Enum> found = value_in(names, text())) return *found;
    std::string known;
    for (const auto& [value, name] : names)
      known += (known.empty() ? "" : ", ") + std::string{name};
    refuse("one of " + known);
  }
  [[nodiscard]] nanoseconds time() const { return nanoseconds{integer()}; }
  [[nodiscard]] bytes size_in_bytes() const { return bytes{integer()}; }
  template <class Id>
  [[nodiscard]] Id id() const {
    return static_cast<Id>(static_cast<std::int32_t>(integer(0, std::numeric_limits<std::int32_t>::max())));
  }

  /// Fails unless this object calls itself `format`, version 1.
  void require_format(std::string_view format) const {
    if ((*this)["format"].text() != format) (*this)["format"].refuse('"' + std::string{format} + '"');
    if ((*this)["version"].integer() != 1) (*this)["version"].refuse("1, the version that is known here");
  }

 private:
  reader(const json& value, const reader& parent, const char* key, std::size_t at)
      : value_{&value}, name_{parent.name_}, parent_{&parent}, key_{key}, at_{at}, of_plan_{parent.of_plan_} {}

  [[nodiscard]] std::string path() const {
    if (parent_ == nullptr) return {};
    const std::string before = parent_->path();
    if (key_ == nullptr) return before + '[' + std::to_string(at_) + ']';
    return before.empty() ? std::string{key_} : before + '.' + key_;
  }

  const json* value_;
  const std::string* name_;
  const reader* parent_ = nullptr;
  const char* key_ = nullptr;  ///< null: an element of a list
  std::size_t at_ = 0;
  bool of_plan_;
};

/// Appends texts as they are, and integers, quantities and ids as decimal numbers.
template <class... Parts>
void put(std::string& out, const Parts&... parts) {
  const auto one = [&](const auto& part) {
    using part_type = std::remove_cvref_t<decltype(part)>;
    if constexpr (std::is_convertible_v<part_type, std::string_view>) {
      out += std::string_view{part};
    } else {
      std::int64_t number = 0;
      if constexpr (requires { part.value(); })
        number = part.value();
      else
        number = static_cast<std::int64_t>(part);
      char digits[24];
      out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
    }
  };
  (one(parts), ...);
}

/// A text in quotes, escaped; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] inline std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}
[[nodiscard]] constexpr std::string_view truth(bool value) { return value ? "true" : "false"; }

/// The shortest decimal number that reads back as `value`; null where JSON has no word for it.
[[nodiscard]] inline std::string decimal(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

}  // namespace json_detail
}  // namespace dynapipe
