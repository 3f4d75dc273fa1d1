#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <dynapipe/batch/sample.hpp>

using namespace dynapipe;

namespace {

const model_spec gpt = presets::gpt_6_7b();
const model_spec t5 = presets::t5_11b();

sample_lengths read(const model_spec& model, std::int64_t input, std::int64_t target,
                    const shape_options& options = {}) {
  return lengths_read(model, {input, target}, options, 0);
}

std::string complaint(const model_spec& model, sample s, std::size_t number) {
  try {
    static_cast<void>(lengths_read(model, s, {}, number));
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

std::string complaint(const shape_options& options) {
  try {
    require_sound(options);
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a decoder-only model reads input and target as one sequence, less the offset") {
  CHECK(read(gpt, 100, 28) == sample_lengths{127, 0, 28});
  CHECK(read(gpt, 1, 1) == sample_lengths{1, 0, 1});
  CHECK(read(gpt, 0, 5) == sample_lengths{4, 0, 5});
  shape_options none;
  none.sequence_offset = 0;
  CHECK(read(gpt, 100, 28, none) == sample_lengths{128, 0, 28});
  none.sequence_offset = 200;
  CHECK(read(gpt, 100, 28, none) == sample_lengths{1, 0, 28});
}

TEST_CASE("a plain document's loss tokens are all but its first") {
  CHECK(read(gpt, 100, 0) == sample_lengths{99, 0, 99});
  CHECK(read(gpt, 1, 0) == sample_lengths{1, 0, 0});
}

TEST_CASE("an encoder-decoder reads the input as it is and some tokens more than the target") {
  CHECK(read(t5, 100, 28) == sample_lengths{100, 30, 28});
  CHECK(read(t5, 100, 0) == sample_lengths{100, 2, 0});
  CHECK(read(t5, 0, 3) == sample_lengths{0, 5, 3});
  shape_options more;
  more.extra_decoder_tokens = 7;
  more.sequence_offset = 50;
  CHECK(read(t5, 100, 28, more) == sample_lengths{100, 35, 28});
}

TEST_CASE("bad lengths name the sample and its lengths") {
  for (const model_spec& model : {gpt, t5}) {
    CHECK(complaint(model, {0, 0}, 17) == "sample 17 (input 0, target 0): it has no token");
    CHECK(complaint(model, {-1, 5}, 3) == "sample 3 (input -1, target 5): a length is negative");
    CHECK(complaint(model, {5, -9}, 3) == "sample 3 (input 5, target -9): a length is negative");
    CHECK(complaint(model, {longest_length + 1, 0}, 0).find("a length is above 2^31 tokens") != std::string::npos);
    CHECK(complaint(model, {1, longest_length + 1}, 0).find("a length is above 2^31 tokens") != std::string::npos);
    CHECK(complaint(model, {longest_length, longest_length}, 0) == "none");
  }
  CHECK(read(gpt, longest_length, longest_length).input == 2 * longest_length - 1);
}

TEST_CASE("padded lengths are the least multiples, at least one") {
  const shape_options eight;
  for (const auto& [length, padded] :
       {std::pair<int, int>{0, 8}, {1, 8}, {7, 8}, {8, 8}, {9, 16}, {128, 128}, {129, 136}})
    CHECK(padded_length(length, eight) == padded);
  shape_options one;
  one.padding_multiple = 1;
  CHECK(padded_length(0, one) == 1);
  CHECK(padded_length(13, one) == 13);
  shape_options large;
  large.padding_multiple = longest_length;
  CHECK(padded_length(longest_length + 1, large) == 2 * longest_length);
  for (std::int64_t length = 0; length < 300; ++length)
    for (const std::int64_t multiple : {1, 2, 8, 48, 128}) {
      shape_options options;
      options.padding_multiple = multiple;
      const std::int64_t padded = padded_length(length, options);
      CHECK(padded % multiple == 0);
      CHECK(padded >= std::max<std::int64_t>(length, 1));
      CHECK(padded - std::max<std::int64_t>(length, 1) < multiple);
    }
}

TEST_CASE("the smallest shape is a row of one padded length") {
  CHECK(smallest_shape(gpt, {}) == shape{1, 8, 0});
  CHECK(smallest_shape(t5, {}) == shape{1, 8, 8});
  shape_options wide;
  wide.padding_multiple = 64;
  CHECK(smallest_shape(t5, wide) == shape{1, 64, 64});
}

TEST_CASE("unsound shape options are refused by name and value") {
  CHECK(complaint(shape_options{}) == "none");
  shape_options bad;
  bad.padding_multiple = 0;
  CHECK(complaint(bad) == "padding_multiple must lie in 1..2^31, it is 0");
  bad = {};
  bad.separator_tokens = -1;
  CHECK(complaint(bad) == "separator_tokens must lie in 0..2^31, it is -1");
  bad = {};
  bad.extra_decoder_tokens = longest_length + 1;
  CHECK(complaint(bad) == "extra_decoder_tokens must lie in 0..2^31, it is 2147483649");
  bad = {};
  bad.sequence_offset = -2;
  CHECK(complaint(bad) == "sequence_offset must lie in 0..2^31, it is -2");
}
