#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/split.hpp>

using namespace dynapipe;

namespace {

model_spec decoder_only(std::int64_t layers) { return presets::gpt("gpt", layers, 64, 4); }
model_spec encoder_decoder(std::int64_t encoder, std::int64_t decoder) {
  model_spec model = presets::t5("t5", 1);
  model.encoder_layers = encoder;
  model.decoder_layers = decoder;
  return model;
}

template <class Make>
std::string complaint(Make make) {
  try {
    make();
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}
std::string refusal(const model_spec& model, std::int64_t stages) {
  return complaint([&] { static_cast<void>(split_layers(model, stages)); });
}

}  // namespace

TEST_CASE("stages cover the layers in order, evenly, longer ones in the middle") {
  for (std::int64_t encoder = 0; encoder <= 9; ++encoder)
    for (std::int64_t decoder = 1; decoder <= 12; ++decoder) {
      const model_spec model = encoder == 0 ? decoder_only(decoder) : encoder_decoder(encoder, decoder);
      for (std::int64_t stages = 1; stages <= model.layers(); ++stages) {
        CAPTURE(encoder);
        CAPTURE(decoder);
        CAPTURE(stages);
        const std::vector<stage_spec> cut = split_layers(model, stages);
        REQUIRE(static_cast<std::int64_t>(cut.size()) == stages);
        std::int64_t next_encoder = 0;
        std::int64_t next_decoder = 0;
        std::int64_t least = model.layers();
        std::int64_t most = 0;
        for (std::size_t s = 0; s < cut.size(); ++s) {
          const stage_spec& stage = cut[s];
          if (stage.encoder.count() > 0) CHECK(next_decoder == 0);
          CHECK(stage.encoder.from == next_encoder);
          CHECK(stage.decoder.from == next_decoder);
          next_encoder = stage.encoder.to;
          next_decoder = stage.decoder.to;
          const std::int64_t size = stage.encoder.count() + stage.decoder.count();
          CHECK(stage.encoder.count() >= 0);
          CHECK(stage.decoder.count() >= 0);
          least = std::min(least, size);
          most = std::max(most, size);
          const bool first_decoder = encoder > 0 && stage.decoder.from == 0 && stage.decoder.count() > 0;
          CHECK(stage.embedding == (s == 0 || first_decoder));
          CHECK(stage.head == (s + 1 == cut.size()));
        }
        CHECK(next_encoder == encoder);
        CHECK(next_decoder == decoder);
        CHECK(least >= 1);
        CHECK(most - least <= 1);
      }
      CHECK(refusal(model, model.layers() + 1).find("it cannot be cut into " + std::to_string(model.layers() + 1)) !=
            std::string::npos);
    }
  const auto sizes = [](const std::vector<stage_spec>& stages) {
    std::vector<std::int64_t> result;
    for (const stage_spec& stage : stages)
      result.push_back(stage.decoder.count());
    return result;
  };
  CHECK(sizes(split_layers(decoder_only(13), 4)) == std::vector<std::int64_t>{3, 3, 4, 3});
  CHECK(sizes(split_layers(decoder_only(14), 4)) == std::vector<std::int64_t>{3, 4, 4, 3});
  CHECK(refusal(decoder_only(4), 0) != "none");
  CHECK(refusal(decoder_only(4), -2) != "none");
}

TEST_CASE("stages from layer counts") {
  const model_spec model = encoder_decoder(4, 3);
  using counts = std::vector<std::int64_t>;
  CHECK(cut_layers(model, counts{3, 2, 2}) ==
        std::vector<stage_spec>{{.encoder = {0, 3}, .decoder = {0, 0}, .embedding = true},
                                {.encoder = {3, 4}, .decoder = {0, 1}, .embedding = true},
                                {.encoder = {4, 4}, .decoder = {1, 3}, .head = true}});
  const auto of = [&](const counts& layers) {
    return complaint([&] { static_cast<void>(cut_layers(model, layers)); });
  };
  CHECK(of({7}) == "none");
  CHECK(of({3, 0, 4}) == "split of model 't5': stage 1 must have at least 1 layer, it has 0");
  CHECK(of({3, 5}) == "split of model 't5': stage 1 has 5 layers, but only 4 of the model's 7 are left");
  CHECK(of({3, 3}) == "split of model 't5': its stages have 6 layers, the model has 7");
  CHECK(of({}) == "split of model 't5': its stages have 0 layers, the model has 7");
}

TEST_CASE("a given split is taken where every stage is right, and refused in words") {
  for (std::int64_t encoder = 0; encoder <= 5; ++encoder)
    for (std::int64_t decoder = 1; decoder <= 5; ++decoder) {
      const model_spec model = encoder == 0 ? decoder_only(decoder) : encoder_decoder(encoder, decoder);
      for (std::int64_t stages = 1; stages <= model.layers(); ++stages) {
        const std::vector<stage_spec> split = split_layers(model, stages);
        CHECK(complaint([&] { require_split(model, split, split.size()); }) == "none");
        CHECK(complaint([&] { require_split(model, split, split.size() + 1); }) != "none");
        // Any flag turned, and any layer taken away, is refused.
        for (std::size_t s = 0; s < split.size(); ++s) {
          const auto refused = [&](auto change) {
            std::vector<stage_spec> other = split;
            change(other[s]);
            CHECK(complaint([&] { require_split(model, other, other.size()); }) != "none");
          };
          refused([](stage_spec& stage) { stage.embedding = !stage.embedding; });
          refused([](stage_spec& stage) { stage.head = !stage.head; });
          refused([](stage_spec& stage) { (stage.encoder.count() > 0 ? stage.encoder : stage.decoder).from += 1; });
          refused([](stage_spec& stage) { (stage.decoder.count() > 0 ? stage.decoder : stage.encoder).to -= 1; });
          refused([](stage_spec& stage) { stage.decoder.to += 1; });
        }
      }
    }
  const model_spec model = encoder_decoder(4, 3);
  std::vector<stage_spec> split = split_layers(model, 3);
  const auto with = [&](auto change) {
    std::vector<stage_spec> other = split;
    change(other);
    return complaint([&] { require_split(model, other, 3); });
  };
  using stages = std::vector<stage_spec>;
  CHECK(with([](stages& s) { s.pop_back(); }) ==
        "split of model 't5': it has 2 stages, the pipeline has 3 (devices x stages per device)");
  CHECK(with([](stages& s) { s[2].embedding = true; }) ==
        "split of model 't5': stage 2 has the embedding, which belongs on the first stage and on the first with "
        "decoder layers");
  CHECK(with([](stages& s) { s[2].head = false; }) ==
        "split of model 't5': stage 2 lacks the head, which belongs on the last stage");
  CHECK(with([](stages& s) { s[2].decoder = {2, 3}; }) ==
        "split of model 't5': stage 2 has decoder layers [2, 3); they must begin at 1, where the stages before it end, "
        "and lie below 3");
  CHECK(with([](stages& s) { s[2].decoder = {1, 2}; }) ==
        "split of model 't5': it ends at encoder layer 4 of 4 and decoder layer 2 of 3");
  CHECK(with([](stages& s) { s[0] = {.encoder = {0, 0}, .decoder = {0, 0}, .embedding = true}; }) ==
        "split of model 't5': stage 0 has no layer");
  CHECK(with([](stages& s) { s[1] = {.encoder = {2, 2}, .decoder = {0, 1}, .embedding = true}; }) ==
        "split of model 't5': stage 1 has decoder layers [0, 1) before encoder layer 2");
}
